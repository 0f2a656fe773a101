// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/preflight"
)

// preflightInterval is how often failed checks are repeated.
const preflightInterval = 10 * time.Second

// preflight checks everything that the adoption relies on. All findings are
// shown at once, in a stable order; none of the checks changes anything.
func (r *Reconciler) preflight(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup) (outcome, error) {
	r.sessions.drop(group.Name)
	resources, err := r.hostResources(ctx, group.Name)
	if err != nil {
		return outcome{}, err
	}
	// What was in the way of taking it up may be gone.
	if result, resumed, err := r.resumeServed(ctx, group, resources); err != nil || resumed {
		return result, err
	}
	resetResources(group, resources)
	report, err := r.lookAtHost(ctx, group)
	if err != nil {
		return outcome{}, err
	}
	findings := refusals(report)
	findings = append(findings, r.checkHosts(ctx, group)...)
	findings = append(findings, r.checkAnnex(ctx, group, resources)...)
	const kind = kubeannexv1alpha1.ConditionPreflightPassed
	if len(findings) > 0 {
		message := strings.Join(findings, "; ")
		if setCondition(group, kind, metav1.ConditionFalse, "Refused", message) {
			r.Recorder.Eventf(group, nil, "Warning", "PreflightFailed", "Preflight", "%.1000s", message)
		}
		return again(preflightInterval), nil
	}
	for _, finding := range report.Findings {
		if finding.Severity == preflight.SeverityWarning {
			r.Recorder.Eventf(group, nil, "Warning", "PreflightWarning", "Preflight", "%.1000s", finding.Message)
		}
	}
	setCondition(group, kind, metav1.ConditionTrue, "Passed", "The group can be adopted")
	return next(kubeannexv1alpha1.PhaseMirroring), nil
}

// lookAtHost collects what the plugin shows too, and the sizes for the status.
func (r *Reconciler) lookAtHost(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup) (*preflight.Report, error) {
	host := r.Connections.Host
	report, err := preflight.Collect(ctx, preflight.Clients{
		Kube: host.Kube, Definitions: host.Definitions, APIServices: host.APIServices, Dynamic: host.Dynamic, Metadata: host.Metadata,
	}, group.Name, preflight.Options{Spec: group.Spec, SkipReferences: true})
	if err != nil {
		return nil, fmt.Errorf("looking at the group in the cluster: %w", err)
	}
	for _, found := range report.Resources {
		entry := resourceStatus(group, found.Name)
		entry.Objects, entry.Bytes = found.Objects, found.EstimatedBytes
	}
	return report, nil
}

// refusals are the findings that the adoption has to wait for. To the controller
// objects that it may not read are one of them.
func refusals(report *preflight.Report) []string {
	var messages []string
	for _, finding := range report.Findings {
		unread := finding.Severity == preflight.SeverityWarning && finding.Check == preflight.CheckObjects
		if finding.Severity == preflight.SeverityRefusal || unread {
			messages = append(messages, finding.Message)
		}
	}
	return messages
}

// checkHosts asks every kube-apiserver for annex, through the aggregator.
func (r *Reconciler) checkHosts(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup) []string {
	err := r.onEveryHost(ctx, func(ctx context.Context, server hostEndpoint) error {
		return server.Groups.KubeannexV1alpha1().RESTClient().Get().Resource("annexedgroups").Name(group.Name).MaxRetries(0).Do(ctx).Error()
	})
	if err != nil {
		return []string{"annex is not reachable through every kube-apiserver: " + oneLine(err) +
			": see that APIService v1alpha1.kubeannex.io is Available and that --host-endpoints are right, or, where kube-apiservers have no addresses of their own, use --host-sampling"}
	}
	return nil
}

// checkAnnex asks every replica of annex.
func (r *Reconciler) checkAnnex(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup, resources []resource) []string {
	statuses, err := r.replicas(ctx, group.Name)
	if err != nil {
		return []string{"not every replica of annex is reachable: " + oneLine(err) + ": see that its pods are ready and that --annex-endpoints are right"}
	}
	if len(statuses) == 0 {
		return []string{"annex has no replica: start annex-apiserver"}
	}
	var findings []string
	status := statuses[0]
	for _, s := range statuses {
		status.Revision = min(status.Revision, s.Revision)
	}
	if len(resources) > 0 {
		host, err := revisionAt(ctx, r.Connections.Host, resources[0].storage)
		switch {
		case err != nil:
			// The look at the host has said so.
		case status.Revision <= host:
			findings = append(findings, fmt.Sprintf("the revision of annex's etcd, %d, is not above the cluster's, %d, so watches would lose events: start annex with an etcd that was born at --etcd-revision-floor",
				status.Revision, host))
		}
	}
	var bytes int64
	for i := range group.Status.Resources {
		bytes += group.Status.Resources[i].Bytes
	}
	if needed := status.DatabaseBytes + bytes + bytes*3/10; status.QuotaBytes > 0 && needed > status.QuotaBytes {
		findings = append(findings, fmt.Sprintf("the copy needs about %d MiB of annex's etcd, whose quota is %d MiB with %d MiB in use: raise its quota",
			(bytes+bytes*3/10)>>20, status.QuotaBytes>>20, status.DatabaseBytes>>20))
	}
	return append(findings, r.checkStrangers(ctx, group.Name)...)
}

// checkStrangers refuses to overwrite definitions that somebody else made in annex.
func (r *Reconciler) checkStrangers(ctx context.Context, group string) []string {
	definitions, err := listDefinitions(ctx, r.Connections.Annex, group)
	if err != nil {
		return []string{oneLine(err)}
	}
	var findings []string
	for i := range definitions {
		if !isMirror(&definitions[i]) {
			findings = append(findings, "annex has a definition "+definitions[i].Name+" of its own: delete it there, with its objects")
		}
	}
	return findings
}
