// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// +k8s:openapi-gen=true
// +k8s:deepcopy-gen=package
// +k8s:conversion-gen=github.com/kubeannex/annex/pkg/apis/kubeannex
// +k8s:defaulter-gen=TypeMeta
// +k8s:openapi-model-package=io.kubeannex.v1alpha1
// +groupName=kubeannex.io

// Package v1alpha1 is the served version of the kubeannex.io API.
package v1alpha1
