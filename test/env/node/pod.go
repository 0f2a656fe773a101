// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	// retryInterval is the pause before a step is tried again that failed for
	// another reason than an object that is missing.
	retryInterval = time.Second
	// refreshInterval is how often the volumes are looked at when nothing changed,
	// because tokens end.
	refreshInterval = 30 * time.Second
)

// pod runs one Pod from its binding to its end.
type pod struct {
	node     *Node
	uid      types.UID
	ip       string
	dir      string
	root     string
	inits    []*container
	mains    []*container
	volumes  map[string]*volume
	reporter *reporter

	// poked says that an object changed that the volumes may come from.
	poked chan struct{}
	// stopping is closed when the deletion of the object was requested.
	stopping chan struct{}
	// gone is closed when the object has gone.
	gone chan struct{}

	mu     sync.Mutex
	live   *corev1.Pod
	reason string
	issue  string
	hosts  string
}

func newPod(n *Node, live *corev1.Pod, ip string) *pod {
	dir := filepath.Join(n.dirs.pods, string(live.UID))
	p := &pod{
		node: n, uid: live.UID, ip: ip, dir: dir, root: filepath.Join(dir, "root"),
		volumes: map[string]*volume{},
		poked:   make(chan struct{}, 1), stopping: make(chan struct{}), gone: make(chan struct{}),
		live: live.DeepCopy(),
	}
	p.reporter = newReporter(p)
	for i := range live.Spec.InitContainers {
		p.inits = append(p.inits, newContainer(p, &live.Spec.InitContainers[i]))
	}
	for i := range live.Spec.Containers {
		p.mains = append(p.mains, newContainer(p, &live.Spec.Containers[i]))
	}
	p.update(live)
	return p
}

// update takes a newer state of the object.
func (p *pod) update(live *corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live = live.DeepCopy()
	if live.DeletionTimestamp != nil && !closed(p.stopping) {
		close(p.stopping)
	}
}

// forget ends everything at once.
func (p *pod) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !closed(p.gone) {
		close(p.gone)
	}
}

func (p *pod) poke() {
	select {
	case p.poked <- struct{}{}:
	default:
	}
}

// object returns the newest state of the Pod. It must not be changed.
func (p *pod) object() *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.live
}

func (p *pod) String() string {
	live := p.object()
	return live.Namespace + "/" + live.Name
}

// run is the life of the pod.
func (p *pod) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { p.reporter.run(ctx) })
	background.Go(func() {
		select {
		case <-p.gone:
		case <-ctx.Done():
		}
		cancel()
	})
	if p.prepare(ctx) && p.runInits(ctx) {
		background.Go(func() { p.refresh(ctx) })
		p.runMains(ctx)
	}
	p.finish(ctx)
	cancel()
	background.Wait()
	p.cleanUp()
}

// prepare repeats until the pod can start: bound, with a root directory and all volumes.
func (p *pod) prepare(ctx context.Context) bool {
	for {
		err := p.tryPrepare(ctx)
		p.explain("ContainerCreating", err)
		if err == nil {
			return true
		}
		if !p.pause(ctx, retryInterval) {
			return false
		}
	}
}

// pause waits for a change or for the given time; false when the pod ends.
func (p *pod) pause(ctx context.Context, duration time.Duration) bool {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-p.stopping:
		return false
	case <-p.poked:
	case <-timer.C:
	}
	return true
}

func (p *pod) tryPrepare(ctx context.Context) error {
	live := p.object()
	if live.Spec.NodeName == "" {
		if err := p.bind(ctx, live); err != nil {
			return err
		}
	}
	if err := p.node.dirs.makeRoot(p.root); err != nil {
		return err
	}
	if err := p.writeHosts(p.node.proxy.hostsFor(live.Namespace)); err != nil {
		return err
	}
	if err := p.mountVolumes(live); err != nil {
		return err
	}
	return p.writeVolumes(ctx, live)
}

// bind does the work of a scheduler.
func (p *pod) bind(ctx context.Context, live *corev1.Pod) error {
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: live.Namespace, Name: live.Name, UID: live.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: nodeName},
	}
	err := p.node.client.CoreV1().Pods(live.Namespace).Bind(ctx, binding, metav1.CreateOptions{})
	if err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("binding the pod: %w", err)
	}
	return nil
}

// explain says in the status why the pod does not go on.
func (p *pod) explain(reason string, err error) {
	p.mu.Lock()
	p.reason, p.issue = "", ""
	if err != nil {
		p.reason, p.issue = reason, err.Error()
	}
	p.mu.Unlock()
	p.reporter.poke()
}

// runInits runs the init containers one after the other; false when the pod ends.
func (p *pod) runInits(ctx context.Context) bool {
	for _, c := range p.inits {
		if !c.runToSuccess(ctx) {
			return false
		}
	}
	return true
}

// runMains runs the containers until all have ended for good.
func (p *pod) runMains(ctx context.Context) {
	var loops sync.WaitGroup
	for _, c := range p.mains {
		loops.Go(func() { c.loop(ctx) })
	}
	loops.Wait()
}

// grace is how long the containers may take to end.
func (p *pod) grace() time.Duration {
	live := p.object()
	seconds := int64(30)
	if live.Spec.TerminationGracePeriodSeconds != nil {
		seconds = *live.Spec.TerminationGracePeriodSeconds
	}
	if live.DeletionTimestamp != nil && live.DeletionGracePeriodSeconds != nil {
		seconds = *live.DeletionGracePeriodSeconds
	}
	return time.Duration(seconds) * time.Second
}

// refresh keeps the mounted volumes equal to their sources.
func (p *pod) refresh(ctx context.Context) {
	for p.pause(ctx, refreshInterval) {
		if err := p.writeVolumes(ctx, p.object()); err != nil {
			p.event(ctx, "FailedMount", err.Error())
		}
	}
}

// finish reports the end of the containers and completes a deletion.
func (p *pod) finish(ctx context.Context) {
	p.reporter.last(ctx)
	if !closed(p.stopping) {
		return
	}
	live := p.object()
	now := metav1.NewDeleteOptions(0)
	now.Preconditions = metav1.NewUIDPreconditions(string(p.uid))
	for ctx.Err() == nil {
		err := p.node.client.CoreV1().Pods(live.Namespace).Delete(ctx, live.Name, *now)
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return
		}
		if !sleep(ctx, retryInterval) {
			return
		}
	}
}

// cleanUp gives claims back and frees the root directory.
func (p *pod) cleanUp() {
	p.releaseClaims()
	os.RemoveAll(p.dir) //nolint:errcheck // the environment removes what is left
}

// event records what went wrong for kubectl describe.
func (p *pod) event(ctx context.Context, reason, message string) {
	live := p.object()
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: live.Namespace, GenerateName: live.Name + "-"},
		InvolvedObject: corev1.ObjectReference{
			Kind: "Pod", APIVersion: corev1.SchemeGroupVersion.String(),
			Namespace: live.Namespace, Name: live.Name, UID: live.UID,
		},
		Type: corev1.EventTypeWarning, Reason: reason, Message: message,
		Source:         corev1.EventSource{Component: "kubelet", Host: nodeName},
		FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(), Count: 1,
	}
	// An event that is lost harms nothing.
	_, _ = p.node.client.CoreV1().Events(live.Namespace).Create(ctx, event, metav1.CreateOptions{})
}

// patchStatus replaces the status that the node owns.
func (p *pod) patchStatus(ctx context.Context, patch []byte) error {
	live := p.object()
	_, err := p.node.client.CoreV1().RESTClient().Patch(types.MergePatchType).
		Namespace(live.Namespace).Resource("pods").Name(live.Name).SubResource("status").
		VersionedParams(&metav1.PatchOptions{}, scheme.ParameterCodec).Body(patch).Do(ctx).Get()
	return err
}

func closed(channel <-chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}

// sleep waits; false when ctx ends first.
func sleep(ctx context.Context, duration time.Duration) bool {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
