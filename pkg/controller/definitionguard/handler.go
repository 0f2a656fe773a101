// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package definitionguard watches over the CustomResourceDefinitions of groups
// that annex serves. kube-apiserver makes a local APIService for every version
// that a definition starts to serve, and requests for it would then read the
// cluster's old copies. The guard, a validating webhook, therefore points the
// APIService of a new version at annex before the definition is stored, and
// refuses the change when it cannot.
package definitionguard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	annexclient "github.com/kubeannex/annex/pkg/generated/clientset/versioned"
)

// Handler answers the reviews of the guard.
type Handler struct {
	// Groups is of annex.
	Groups annexclient.Interface
	// Registrar points APIServices at annex.
	Registrar *Registrar
	// Routed returns when every kube-apiserver sends requests of a version to annex. A
	// kube-apiserver may learn of a definition before it learns of an APIService that is older.
	Routed func(context.Context, schema.GroupVersion) error
	// Username is who the controller is at the host. The guard lets it pass.
	Username string
}

var _ admission.Handler = (*Handler)(nil)

// NewWebhook returns the handler as the webhook server takes it, at Path.
func NewWebhook(handler *Handler) http.Handler { return &admission.Webhook{Handler: handler} }

// Handle decides on one CustomResourceDefinition.
func (h *Handler) Handle(ctx context.Context, request admission.Request) admission.Response {
	if h.Username != "" && request.UserInfo.Username == h.Username {
		return admission.Allowed("")
	}
	var definition, old apiextensionsv1.CustomResourceDefinition
	if err := json.Unmarshal(request.Object.Raw, &definition); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decoding the CustomResourceDefinition: %w", err))
	}
	if request.Operation == admissionv1.Update {
		if err := json.Unmarshal(request.OldObject.Raw, &old); err != nil {
			return admission.Errored(http.StatusBadRequest, fmt.Errorf("decoding the stored CustomResourceDefinition: %w", err))
		}
	}
	if request.Operation != admissionv1.Create && request.Operation != admissionv1.Update {
		return admission.Allowed("")
	}
	group, err := h.Groups.KubeannexV1alpha1().AnnexedGroups().Get(ctx, definition.Spec.Group, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return admission.Allowed("")
	}
	if err != nil {
		return refuse(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
			fmt.Sprintf("annex serves the group %s and cannot be asked: %v: try again", definition.Spec.Group, err))
	}
	switch stageOf(group) {
	case stageMoving:
		return refuse(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
			fmt.Sprintf("the group %s is being moved between the cluster and annex (phase %s): try again in a second", group.Name, group.Status.Phase))
	case stageServed:
		return h.claim(ctx, &definition, &old, request.DryRun != nil && *request.DryRun)
	default:
		return admission.Allowed("")
	}
}

// claim takes over the APIServices of all served versions. Those that were not
// served before are waited for.
func (h *Handler) claim(ctx context.Context, definition, old *apiextensionsv1.CustomResourceDefinition, dryRun bool) admission.Response {
	before := served(old)
	for _, version := range served(definition) {
		gv := schema.GroupVersion{Group: definition.Spec.Group, Version: version}
		var err error
		if dryRun {
			err = h.Registrar.Check(ctx, gv)
		} else if err = h.Registrar.Claim(ctx, gv); err == nil && !slices.Contains(before, version) {
			err = h.Routed(ctx, gv)
		}
		var foreign *ForeignError
		switch {
		case errors.As(err, &foreign):
			return refuse(http.StatusForbidden, metav1.StatusReasonForbidden,
				fmt.Sprintf("version %s cannot be served by annex like the rest of the group: %v", version, foreign))
		case err != nil:
			return refuse(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
				fmt.Sprintf("version %s cannot be routed to annex before it is served: %v: try again", version, err))
		}
	}
	return admission.Allowed("")
}

// served are the names of the versions that clients of a definition may ask for.
func served(definition *apiextensionsv1.CustomResourceDefinition) []string {
	var names []string
	for _, version := range definition.Spec.Versions {
		if version.Served && version.Name != kubeannexv1alpha1.PrivateVersion {
			names = append(names, version.Name)
		}
	}
	return names
}

// stage is what the guard has to do for a group.
type stage int

const (
	// stageElsewhere is a group that the cluster serves: everything is allowed.
	stageElsewhere stage = iota
	// stageMoving is a group between the two: nothing may change for these seconds.
	stageMoving
	// stageServed is a group that annex serves.
	stageServed
)

func stageOf(group *kubeannexv1alpha1.AnnexedGroup) stage {
	switch group.Status.Phase {
	case kubeannexv1alpha1.PhaseFencing, kubeannexv1alpha1.PhaseVerifying, kubeannexv1alpha1.PhaseCuttingOver,
		kubeannexv1alpha1.PhaseUnfencing, kubeannexv1alpha1.PhaseReleaseFencing,
		kubeannexv1alpha1.PhaseReleaseVerifying, kubeannexv1alpha1.PhaseReleaseCuttingOver:
		return stageMoving
	case kubeannexv1alpha1.PhaseAnnexed, kubeannexv1alpha1.PhaseReleasing:
		return stageServed
	default:
		return stageElsewhere
	}
}

// Guarded says whether the guard has to be in place for a group.
func Guarded(group *kubeannexv1alpha1.AnnexedGroup) bool {
	switch group.Status.Phase {
	case kubeannexv1alpha1.PhaseMirroring, kubeannexv1alpha1.PhaseCopying, kubeannexv1alpha1.PhaseCatchingUp:
		return true // the next phases need it on every kube-apiserver
	default:
		return stageOf(group) != stageElsewhere
	}
}

func refuse(code int32, reason metav1.StatusReason, message string) admission.Response {
	status := &metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}
	if code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable {
		status.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	}
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: status}}
}
