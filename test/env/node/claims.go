// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// defaultTokenLife is the life of a token in seconds when the manifest names none.
const defaultTokenLife = 3600

// claim is the data of a PersistentVolumeClaim.
type claim struct {
	uid types.UID
	// home is where the data rests while no pod has it.
	home string
}

// claimChanged binds a new claim. There is no PersistentVolume: the data is a
// folder of this machine.
func (n *Node) claimChanged(life context.Context, object any) {
	live, ok := object.(*corev1.PersistentVolumeClaim)
	if !ok || live.Status.Phase == corev1.ClaimBound || live.DeletionTimestamp != nil {
		return
	}
	n.pokePods()
	n.workers.Go(func() {
		for ; life.Err() == nil; sleep(life, retryInterval) {
			if err := n.bindClaim(life, live); err == nil {
				return
			}
		}
	})
}

func (n *Node) bindClaim(ctx context.Context, live *corev1.PersistentVolumeClaim) error {
	patch, err := json.Marshal(map[string]any{"status": corev1.PersistentVolumeClaimStatus{
		Phase: corev1.ClaimBound, AccessModes: live.Spec.AccessModes, Capacity: live.Spec.Resources.Requests,
	}})
	if err != nil {
		return err
	}
	_, err = n.client.CoreV1().PersistentVolumeClaims(live.Namespace).
		Patch(ctx, live.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// claimDeleted frees the data of a claim that has gone.
func (n *Node) claimDeleted(object any) {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	if live, ok := object.(*corev1.PersistentVolumeClaim); ok {
		os.RemoveAll(n.claimHome(live.UID)) //nolint:errcheck // the environment removes what is left
	}
}

func (n *Node) claimHome(uid types.UID) string { return filepath.Join(n.dirs.claims, string(uid)) }

// mountClaim moves the data of a claim into the pod: one pod has it at a time.
func (p *pod) mountClaim(live *corev1.Pod, v *volume) error {
	name := v.spec.PersistentVolumeClaim.ClaimName
	object, err := p.node.claimLister.PersistentVolumeClaims(live.Namespace).Get(name)
	if err != nil {
		return err
	}
	p.node.mu.Lock()
	defer p.node.mu.Unlock()
	if p.node.claimed[object.UID] {
		return fmt.Errorf("claim %s is in use by another pod", name)
	}
	home := p.node.claimHome(object.UID)
	if err := os.Mkdir(home, 0o755); err != nil && !os.IsExist(err) {
		return err
	}
	if err := os.Rename(home, v.dir); err != nil {
		return err
	}
	if err := giveTree(v.dir, fsGroup(live), 0o660); err != nil {
		return err
	}
	v.claim = &claim{uid: object.UID, home: home}
	p.node.claimed[object.UID] = true
	return nil
}

// releaseClaims moves the data of claims back.
func (p *pod) releaseClaims() {
	p.node.mu.Lock()
	defer p.node.mu.Unlock()
	for _, v := range p.volumes {
		if v.claim == nil {
			continue
		}
		if err := os.Rename(v.dir, v.claim.home); err == nil {
			delete(p.node.claimed, v.claim.uid)
		}
	}
}

// token is a token of the pod's service account.
type token struct {
	value []byte
	// renew is when four fifths of its life are over.
	renew time.Time
}

// serviceAccountToken returns the token of a volume, a new one in time before the end of the old.
func (p *pod) serviceAccountToken(ctx context.Context, live *corev1.Pod, v *volume, source *corev1.ServiceAccountTokenProjection) ([]byte, error) {
	if v.token != nil && time.Now().Before(v.token.renew) {
		return v.token.value, nil
	}
	life := int64(defaultTokenLife)
	if source.ExpirationSeconds != nil {
		life = *source.ExpirationSeconds
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &life,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: live.Name, UID: live.UID},
	}}
	if source.Audience != "" {
		request.Spec.Audiences = []string{source.Audience}
	}
	answer, err := p.node.client.CoreV1().ServiceAccounts(live.Namespace).
		CreateToken(ctx, live.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("asking for a token of service account %s: %w", live.Spec.ServiceAccountName, err)
	}
	v.token = &token{
		value: []byte(answer.Status.Token),
		renew: time.Now().Add(time.Until(answer.Status.ExpirationTimestamp.Time) * 4 / 5),
	}
	return v.token.value, nil
}
