// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxReview bounds a request: etcd takes objects of 1.5 MiB, a review holds two in JSON.
const maxReview = 16 << 20

// Handler answers the reviews of all fences: nobody may write but the
// controller. It knows no state, so every replica of the controller can serve it.
type Handler struct {
	// Username is who the controller is at the host.
	Username string
}

var _ http.Handler = (*Handler)(nil)

// ServeHTTP answers one AdmissionReview.
func (h *Handler) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	var review admissionv1.AdmissionReview
	body, err := io.ReadAll(http.MaxBytesReader(response, request.Body, maxReview))
	if err == nil {
		err = json.Unmarshal(body, &review)
	}
	if err == nil && review.Request == nil {
		err = errors.New("the request is missing")
	}
	if err != nil {
		http.Error(response, fmt.Sprintf("reading an AdmissionReview: %v", err), http.StatusBadRequest)
		return
	}
	review.Response = h.review(review.Request)
	review.Request = nil
	response.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(response).Encode(&review); err != nil {
		return // the caller has gone
	}
}

func (h *Handler) review(request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	group := request.Resource.Group
	isProbe := group == "" && request.Resource.Resource == "configmaps"
	if isProbe {
		group = strings.TrimPrefix(request.Name, probePrefix)
	}
	if !isProbe && h.Username != "" && request.UserInfo.Username == h.Username {
		return &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true}
	}
	return &admissionv1.AdmissionResponse{
		UID: request.UID,
		Result: &metav1.Status{
			Status:  metav1.StatusFailure,
			Code:    http.StatusTooManyRequests,
			Reason:  metav1.StatusReasonTooManyRequests,
			Message: message(group),
			Details: &metav1.StatusDetails{RetryAfterSeconds: 1},
		},
	}
}

// message is what a client sees that does not wait.
func message(group string) string {
	return fmt.Sprintf("%s: the group is being moved between the cluster and annex: try again in a second", Name(group))
}

// isAnswer recognises the answer of Handler, as kube-apiserver passes it on.
func isAnswer(err error, group string) bool {
	return apierrors.IsTooManyRequests(err) && strings.Contains(err.Error(), message(group))
}

func probe(namespace, group string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: probeName(group)}}
}
