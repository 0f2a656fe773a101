// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listersv1 "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubeannex/annex/test/env"
)

// nodeName is the name of the only Node.
const nodeName = "node"

// nodeIP is the address of the Node.
const nodeIP = "127.0.0.1"

// Options say what a node runs.
type Options struct {
	// Host is the control plane; it was started with LoopbackServices.
	Host *env.Host
	// Programs are the files of every image, as name and path on this machine. A
	// container finds them in /usr/local/bin. They must be linked statically.
	Programs map[string]string
}

// Node runs the pods of a host and serves its Services.
type Node struct {
	options Options
	client  kubernetes.Interface
	network env.Network
	dirs    directories
	proxy   *proxy

	podLister       listersv1.PodLister
	serviceLister   listersv1.ServiceLister
	secretLister    listersv1.SecretLister
	configMapLister listersv1.ConfigMapLister
	claimLister     listersv1.PersistentVolumeClaimLister

	cancel  context.CancelFunc
	workers sync.WaitGroup

	mu      sync.Mutex
	pods    map[types.UID]*pod
	nextIP  int
	claimed map[types.UID]bool
}

// Start makes a Node in the host, runs every pod that nobody else runs and
// serves every Service. It ends with the environment at the latest.
func Start(ctx context.Context, e *env.Env, options Options) (*Node, error) {
	config, err := options.Host.AdminConfig()
	if err != nil {
		return nil, err
	}
	// EndpointSlices with names are deprecated, and all that there is here.
	config.WarningHandlerWithContext = rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for the node: %w", err)
	}
	n := &Node{
		options: options, client: client, network: e.Network(),
		pods: map[types.UID]*pod{}, claimed: map[types.UID]bool{},
	}
	dir, err := e.Mkdir("node")
	if err != nil {
		return nil, err
	}
	if n.dirs, err = newDirectories(dir, options.Programs); err != nil {
		return nil, err
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n.cancel = cancel
	e.CloseWith(n)
	port, err := n.serveLogs(life)
	if err != nil {
		return nil, err
	}
	if err := n.register(ctx, port); err != nil {
		return nil, err
	}
	return n, n.watch(ctx, life)
}

// register makes the Node object; logs are served at the given port.
func (n *Node) register(ctx context.Context, port int32) error {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("64"),
		corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods:   resource.MustParse("1000"),
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: map[string]string{
		corev1.LabelHostname: nodeName, corev1.LabelTopologyZone: "zone", corev1.LabelOSStable: "linux",
	}}}
	node, err := n.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating the Node: %w", err)
	}
	node.Status.Capacity, node.Status.Allocatable = capacity, capacity
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: nodeIP}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = port
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
		LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
	}}
	if _, err := n.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("reporting the Node as ready: %w", err)
	}
	return nil
}

// watch starts the informers and returns once they have seen everything. The
// node works until life ends.
func (n *Node) watch(ctx, life context.Context) error {
	factory := informers.NewSharedInformerFactory(n.client, 0)
	core := factory.Core().V1()
	n.podLister, n.serviceLister = core.Pods().Lister(), core.Services().Lister()
	n.secretLister, n.configMapLister = core.Secrets().Lister(), core.ConfigMaps().Lister()
	n.claimLister = core.PersistentVolumeClaims().Lister()
	n.proxy = newProxy(n)

	var errs []error
	handle := func(informer cache.SharedIndexInformer, changed, deleted func(any)) {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: changed, UpdateFunc: func(_, object any) { changed(object) }, DeleteFunc: deleted,
		})
		errs = append(errs, err)
	}
	pokeProxy := func(any) { n.proxy.poke() }
	pokePods := func(any) { n.pokePods() }
	handle(core.Pods().Informer(), func(object any) { n.podChanged(life, object) }, n.podDeleted)
	handle(core.Services().Informer(), pokeProxy, pokeProxy)
	handle(core.Secrets().Informer(), pokePods, pokePods)
	handle(core.ConfigMaps().Informer(), pokePods, pokePods)
	handle(core.PersistentVolumeClaims().Informer(), func(object any) { n.claimChanged(life, object) }, n.claimDeleted)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("watching the host: %w", err)
	}
	factory.Start(life.Done())
	n.workers.Go(func() {
		<-life.Done()
		factory.Shutdown()
	})
	synced, cancel := context.WithCancel(ctx)
	defer cancel()
	for kind, ok := range factory.WaitForCacheSync(synced.Done()) {
		if !ok {
			return fmt.Errorf("waiting for the %v of the host: %w", kind, context.Cause(ctx))
		}
	}
	n.workers.Go(func() { n.proxy.run(life) })
	return nil
}

// podChanged gives the pod to its worker, a new one when the pod is new.
func (n *Node) podChanged(life context.Context, object any) {
	n.proxy.poke()
	live, ok := object.(*corev1.Pod)
	if !ok || len(live.Spec.SchedulingGates) > 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if worker := n.pods[live.UID]; worker != nil {
		worker.update(live)
		return
	}
	if finished(live) || (live.Spec.NodeName != "" && live.Spec.NodeName != nodeName) {
		return
	}
	worker := newPod(n, live, n.network.PodIP(n.nextIP))
	n.nextIP++
	n.pods[live.UID] = worker
	n.workers.Go(func() { worker.run(life) })
}

// podDeleted ends what still runs of a pod whose object has gone.
func (n *Node) podDeleted(object any) {
	n.proxy.poke()
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	live, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if worker := n.pods[live.UID]; worker != nil {
		worker.forget()
		delete(n.pods, live.UID)
	}
}

// pokePods makes every pod look at its volumes again.
func (n *Node) pokePods() {
	for _, worker := range n.running() {
		worker.poke()
	}
}

// running returns the pods that the node knows.
func (n *Node) running() []*pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	workers := make([]*pod, 0, len(n.pods))
	for worker := range maps.Values(n.pods) {
		workers = append(workers, worker)
	}
	return workers
}

// Close kills everything that the node runs and waits for the end.
func (n *Node) Close() error {
	n.cancel()
	n.workers.Wait()
	return nil
}

// finished says that a pod has run to its end.
func finished(live *corev1.Pod) bool {
	return live.Status.Phase == corev1.PodSucceeded || live.Status.Phase == corev1.PodFailed
}

// Controllers are the controllers of kube-controller-manager that a node of this
// package works with. Left out are those whose work it does itself, and the
// EndpointSlice controllers, which the API would refuse.
func Controllers() []string {
	return append(env.DefaultControllers(),
		"statefulset-controller",
		"job-controller",
		"cronjob-controller",
		"ttl-after-finished-controller",
		"disruption-controller",
		"persistentvolumeclaim-protection-controller",
	)
}

// Logs returns what the containers of a namespace printed whose pod names begin
// with the given text, also those of pods that have gone.
func (n *Node) Logs(namespace, podPrefix string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(n.dirs.logs, namespace+"_"+podPrefix+"*.log"))
	if err != nil {
		return nil, fmt.Errorf("finding logs: %w", err)
	}
	logs := map[string]string{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading a log: %w", err)
		}
		logs[strings.TrimSuffix(filepath.Base(file), ".log")] = string(content)
	}
	return logs, nil
}

// PrintLogs writes the ends of all logs of a namespace.
func (n *Node) PrintLogs(w io.Writer, namespace string, lines int) {
	logs, err := n.Logs(namespace, "")
	if err != nil {
		fmt.Fprintln(w, err)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(logs)) {
		all := strings.Split(strings.TrimSuffix(logs[name], "\n"), "\n")
		fmt.Fprintf(w, "--- last lines of %s\n%s\n", name, strings.Join(all[max(0, len(all)-lines):], "\n"))
	}
}
