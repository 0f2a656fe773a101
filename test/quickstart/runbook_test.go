// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/test/env"
	"github.com/kubeannex/annex/test/env/ports"
)

const (
	// runbookTimeout bounds all moves of the runbook together.
	runbookTimeout = 8 * time.Minute
	// runbookGroup is the group that the runbook speaks of.
	runbookGroup = "argoproj.io"
	// objects is how many it has.
	objects = 20
	// installed is the command that ends the installation: it needs the servers.
	installed = "kubectl get annexedgroups"
)

// runbook is a cluster in which the commands of the operations page are run.
type runbook struct {
	env        *env.Env
	root       string
	host       *env.Host
	annex      *env.Annex
	controller *env.Controller
	config     *rest.Config
	kubeconfig string
	ran        []string
	// metrics is where the controller shows its metrics.
	metrics string
}

// TestRunbook runs the commands of the operations page, and holds the README to
// commands that were run there.
func TestRunbook(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), runbookTimeout)
	defer cancel()
	r, err := newRunbook(ctx, env.ForTest(t))
	if err != nil {
		t.Fatal(err)
	}
	r.metrics = fmt.Sprintf("127.0.0.1:%d", ports.Free(t))
	page, readme := r.read(t, "docs/operations.md"), r.read(t, "README.md")
	for _, heading := range order(headings(page)) {
		t.Run(heading, func(t *testing.T) { r.play(ctx, t, heading, commands(section(page, heading))) })
		if t.Failed() {
			return
		}
	}
	t.Run("health checks", func(t *testing.T) { r.healthChecks(ctx, t, page) })
	t.Run("metrics", func(t *testing.T) { r.controllerMetrics(ctx, t) })
	for _, heading := range headings(readme) {
		for _, command := range commands(section(readme, heading)) {
			// Of the chart, which test/install installs by these commands.
			if heading != alone && heading != "Install in a cluster" && !slices.Contains(r.ran, command) {
				t.Errorf("the README shows %q, which the operations page does not", command)
			}
		}
	}
}

// order puts sections where their commands make sense one after the other: an
// adoption is aborted before one succeeds, and a release after a purge does not
// have to wait for the last look at the cluster's copies, which takes a minute.
func order(headings []string) []string {
	first := []string{"Install by hand", "Before an adoption", "Abort", "Adopt", "Watch a move", "Purge", "Release"}
	return append(first, slices.DeleteFunc(headings, func(heading string) bool {
		return heading == backup || slices.Contains(first, heading) // the backup is of make run
	})...)
}

// newRunbook starts a cluster with a group in use, without annex.
func newRunbook(ctx context.Context, e *env.Env) (*runbook, error) {
	root, err := env.RepositoryRoot()
	if err != nil {
		return nil, err
	}
	r := &runbook{env: e, root: root}
	if r.host, err = e.StartHost(ctx, env.HostOptions{}); err != nil {
		return nil, err
	}
	if r.config, err = r.host.AdminConfig(); err != nil {
		return nil, err
	}
	if r.kubeconfig, err = r.host.Kubeconfig("admin", "system:masters"); err != nil {
		return nil, err
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict([]byte(workflowDefinition), definition); err != nil {
		return nil, err
	}
	if err := env.InstallCRD(ctx, r.config, definition); err != nil {
		return nil, err
	}
	workflows, err := r.workflows()
	if err != nil {
		return nil, err
	}
	for i := range objects {
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": runbookGroup + "/v1alpha1", "kind": "Workflow", "spec": map[string]any{"entrypoint": "main"},
		}}
		object.SetName(fmt.Sprintf("build-%d", i))
		if _, err := workflows.Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *runbook) workflows() (dynamic.ResourceInterface, error) {
	client, err := dynamic.NewForConfig(r.config)
	if err != nil {
		return nil, err
	}
	resource := schema.GroupVersionResource{Group: runbookGroup, Version: "v1alpha1", Resource: "workflows"}
	return client.Resource(resource).Namespace(metav1.NamespaceDefault), nil
}

func (r *runbook) read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(r.root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// play brings the cluster to where a section of the page begins, runs its
// commands and checks what they have brought about. What an earlier section has
// run is not run again.
func (r *runbook) play(ctx context.Context, t *testing.T, heading string, commands []string) {
	before := map[string]func(context.Context) error{"Abort": r.beforeAbort}
	after := map[string]func(context.Context) error{
		"Install by hand": r.afterInstall,
		"Abort":           r.servedBy("the cluster"),
		"Adopt":           r.servedBy("annex"),
		"Purge":           r.servedBy("annex"),
		"Release":         r.servedBy("the cluster"),
	}
	if step, ok := before[heading]; ok {
		if err := step(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if len(commands) == 0 && (before[heading] != nil || after[heading] != nil) {
		t.Error("the section shows no command")
	}
	for _, command := range commands {
		if slices.Contains(r.ran, command) || command == installed && r.controller == nil {
			continue
		}
		if err := r.shell(ctx, command); err != nil {
			t.Fatal(err)
		}
	}
	if step, ok := after[heading]; ok {
		if err := step(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// shell runs a command of the page as an administrator who has the plugin.
func (r *runbook) shell(ctx context.Context, command string) error {
	cmd := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", command)
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "KUBECONFIG="+r.kubeconfig, "KUBECACHEDIR="+filepath.Dir(r.kubeconfig)+"/cache",
		"PATH="+filepath.Join(r.root, "_output", "kubernetes")+":"+filepath.Join(r.root, "_output", "bin")+":"+os.Getenv("PATH"))
	// A purge asks for the name of the group.
	cmd.Stdin = strings.NewReader(runbookGroup + "\n")
	output, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%q: %w\n%s", command, err, output)
	}
	r.ran = append(r.ran, command)
	return nil
}

// afterInstall starts the servers. Here their users have certificates instead of
// service accounts, so the environment binds the same rights anew.
func (r *runbook) afterInstall(ctx context.Context) error {
	err := r.shell(ctx, "kubectl delete -f config/rbac/annex-apiserver.yaml -f config/rbac/annex-controller.yaml")
	if err != nil {
		return err
	}
	if r.annex, err = r.env.StartAnnex(ctx, env.AnnexOptions{Host: r.host}); err != nil {
		return err
	}
	if err := r.annex.RegisterAPIService(ctx, kubeannex.GroupName, "v1alpha1"); err != nil {
		return err
	}
	if r.controller, err = r.env.StartController(ctx, env.ControllerOptions{
		Host: r.host, Annex: r.annex,
		// No request of this test lives longer than that, and a release waits for it.
		Args: []string{"--host-request-timeout=3s", "--metrics-bind-address=" + r.metrics},
	}); err != nil {
		return err
	}
	if err := r.shell(ctx, installed); err != nil {
		return err
	}
	return r.boundController(ctx)
}

// beforeAbort begins an adoption that cannot have got far when it is aborted.
func (r *runbook) beforeAbort(ctx context.Context) error {
	if err := r.controller.Stop(ctx); err != nil {
		return err
	}
	if err := r.shell(ctx, "kubectl annex adopt "+runbookGroup); err != nil {
		return err
	}
	return r.controller.Start()
}

// servedBy looks for all objects and at the revision that they come with: those
// of annex have sixteen digits, those of this cluster four.
func (r *runbook) servedBy(want string) func(context.Context) error {
	return func(ctx context.Context) error {
		workflows, err := r.workflows()
		if err != nil {
			return err
		}
		list, err := workflows.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) != objects {
			return fmt.Errorf("got %d workflows, want %d", len(list.Items), objects)
		}
		got := "the cluster"
		if len(list.GetResourceVersion()) >= 16 {
			got = "annex"
		}
		if got != want {
			return fmt.Errorf("the group is served by %s, want %s", got, want)
		}
		return nil
	}
}

const workflowDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: workflows.argoproj.io
spec:
  group: argoproj.io
  scope: Namespaced
  names: {plural: workflows, singular: workflow, kind: Workflow, listKind: WorkflowList}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`
