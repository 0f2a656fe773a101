// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/apis/kubeannex/validation"
)

// Clients reach the cluster that has the group.
type Clients struct {
	// Kube is for webhooks and, through its discovery, for the names of other resources.
	Kube kubernetes.Interface
	// Definitions is for CustomResourceDefinitions.
	Definitions apiextensionsclient.Interface
	// APIServices is for APIServices.
	APIServices aggregatorclient.Interface
	// Dynamic is for objects of the group, Metadata for those of others.
	Dynamic  dynamic.Interface
	Metadata metadata.Interface
}

// Options say how far to look.
type Options struct {
	// Spec is the spec that the AnnexedGroup has or would have.
	Spec kubeannexv1alpha1.AnnexedGroupSpec
	// SampleSize is the number of objects that are read of every resource, 0
	// means 100. Sizes, finalizers and references are reckoned from them.
	SampleSize int64
	// SkipReferences leaves out the search through other groups for objects that
	// are owned by objects of this one: it takes one request for every resource
	// that the cluster has.
	SkipReferences bool
}

// Collect looks at the group. What the caller may not read becomes a finding, as
// does everything that is wrong with the group; an error means that the cluster
// did not answer.
func Collect(ctx context.Context, clients Clients, group string, options Options) (*Report, error) {
	if options.SampleSize == 0 {
		options.SampleSize = 100
	}
	c := &collector{clients: clients, group: group, options: options, report: &Report{
		TypeMeta:    metav1.TypeMeta{APIVersion: ReportAPIVersion, Kind: ReportKind},
		Group:       group,
		Resources:   []Resource{},
		APIServices: []APIService{},
		Findings:    []Finding{},
	}}
	if c.checkGroup(); len(c.report.Refusals()) > 0 {
		return c.report, nil
	}
	c.checkStartUp()
	for _, look := range []func(context.Context) error{
		c.lookAtDefinitions, c.lookAtAPIServices, c.lookAtObjects, c.lookAtConversions,
		c.lookAtWebhooks, c.lookAtManagers, c.lookAtReferences,
	} {
		if err := look(ctx); err != nil {
			return nil, err
		}
		if len(c.definitions) == 0 {
			break
		}
	}
	if len(c.definitions) > 0 {
		c.nameUnchecked()
	}
	c.report.sortFindings()
	return c.report, nil
}

// nameUnchecked says what is left to annex-controller, which reaches every
// kube-apiserver and every replica of annex.
func (c *collector) nameUnchecked() {
	c.addf(SeverityInfo, CheckAnnex, "not checked here but when the adoption begins: that the revision of annex's etcd is above the cluster's, the quota of annex's etcd, "+
		"that annex can be reached through every kube-apiserver, and that annex has no definitions of the group that somebody else made there")
}

// Check returns only what refuses a group before anything of it is looked at: its
// name, a definition that it has to have, and the resources that are to be indexed.
func Check(ctx context.Context, client apiextensionsclient.Interface, group string, spec kubeannexv1alpha1.AnnexedGroupSpec) ([]Finding, error) {
	c := &collector{group: group, options: Options{Spec: spec}, report: &Report{}}
	if c.checkGroup(); len(c.report.Refusals()) > 0 {
		return c.report.Refusals(), nil
	}
	c.checkStartUp()
	var err error
	if c.definitions, err = Definitions(ctx, client, group); err != nil {
		return nil, err
	}
	if c.checkDefined() {
		c.checkIndexes()
	}
	return c.report.Refusals(), nil
}

// collector holds what one look finds for the next.
type collector struct {
	clients Clients
	group   string
	options Options
	report  *Report

	definitions []apiextensionsv1.CustomResourceDefinition
	// managed are the objects that annex will change, for lookAtManagers.
	managed []managedObject
	// references count owner references, see references.go.
	references map[referenceKey]int64
}

func (c *collector) addf(severity Severity, check, format string, args ...any) {
	message := strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
	c.report.Findings = append(c.report.Findings, Finding{Severity: severity, Check: check, Message: message})
}

// unreadable turns a refused read into a warning. Any other error is returned.
func (c *collector) unreadable(check, what string, err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) {
		c.addf(SeverityWarning, check, "%s could not be read and are left out: %s", what, reason(err))
		return nil
	}
	return fmt.Errorf("listing %s: %w", what, err)
}

// checkGroup applies the rules that annex-apiserver has for AnnexedGroups.
func (c *collector) checkGroup() {
	versioned := &kubeannexv1alpha1.AnnexedGroup{ObjectMeta: metav1.ObjectMeta{Name: c.group}, Spec: c.options.Spec}
	group := &kubeannex.AnnexedGroup{}
	if err := kubeannexv1alpha1.Convert_v1alpha1_AnnexedGroup_To_kubeannex_AnnexedGroup(versioned, group, nil); err != nil {
		c.addf(SeverityRefusal, CheckGroup, "%v", err)
		return
	}
	for _, err := range validation.ValidateAnnexedGroup(group) {
		check := CheckGroup
		if strings.HasPrefix(err.Field, "spec.resources") {
			check = CheckIndexes
		}
		c.addf(SeverityRefusal, check, "%v", err)
	}
}

// checkStartUp refuses groups that the cluster needs in order to start: annex runs
// in it as ordinary pods. Who knows that annex comes up without them says so.
func (c *collector) checkStartUp() {
	severity, remedy := SeverityRefusal, ": set spec.allowProtectedGroup (--allow-protected-group) if that is so"
	if c.options.Spec.AllowProtectedGroup {
		severity, remedy = SeverityWarning, ""
	}
	for _, warning := range validation.WarningsForAnnexedGroup(&kubeannex.AnnexedGroup{ObjectMeta: metav1.ObjectMeta{Name: c.group}}) {
		c.addf(severity, CheckStartUp, "%s%s", strings.TrimPrefix(warning, "metadata.name: "), remedy)
	}
}

// reason returns the message of an API server without client-go's own words.
func reason(err error) string {
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok && status.ErrStatus.Message != "" {
		return status.ErrStatus.Message
	}
	return err.Error()
}
