// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeannex/annex/test/env"
)

// teamLabel is the label that selectors look at.
const teamLabel = "team"

// change is one step of the history. What it sets is what it names; an empty
// field is left as it is.
type change struct {
	create, remove  bool
	namespace, name string
	team            string
	field           fieldValue
}

// fieldValue is one of the two values of the selectable field.
type fieldValue string

const (
	chosen fieldValue = "chosen" // the one that the field selector asks for; new objects have it
	other  fieldValue = "other"
)

// stages is the history of every resource. The object "beta" is the one that
// queries ask for by name; it is not the first of its namespace, so that a page
// that follows the first object holds it.
func stages() [][]change {
	return [][]change{
		{
			{create: true, namespace: "a", name: "alpha", team: "a"},
			{create: true, namespace: "a", name: "beta", team: "b"},
			{create: true, namespace: "b", name: "delta", team: "a"},
		}, {
			{namespace: "a", name: "alpha", field: other},
			{create: true, namespace: "a", name: "gamma", team: "a"},
		}, {
			{create: true, namespace: "b", name: "epsilon", team: "a"},
			{namespace: "a", name: "beta", team: "a"},
		}, {
			{namespace: "a", name: "beta", field: other},
			{create: true, namespace: "b", name: "zeta", team: "b"},
		}, {
			{namespace: "a", name: "alpha", field: chosen},
			{namespace: "a", name: "gamma", team: "b"},
			{remove: true, namespace: "b", name: "delta"},
			{namespace: "b", name: "epsilon", field: other},
			{namespace: "a", name: "beta", field: chosen},
		},
	}
}

// tokenAt names a continue token: what it carries and which namespace it is for.
type tokenAt struct {
	kind      token
	namespace string
}

// resource is one of the resources under test, with its history.
type resource struct {
	name          string
	groupResource schema.GroupResource
	groupVersion  string
	kind          string
	namespaced    bool
	// etcdPrefix is where its keys are.
	etcdPrefix string
	// nameSuffix makes a valid name out of a short one.
	nameSuffix string
	// fieldPath is the selectable field; values are what chosen and other stand for.
	fieldPath string
	values    map[fieldValue]string
	// fieldInStatus says that the field is written through the status subresource.
	fieldInStatus bool

	journal journal
	tokens  map[tokenAt]takenToken
}

// takenToken is a continue token, and the revision of the list that gave it.
// That may be above the revision of its stage: the server writes too.
type takenToken struct {
	text     string
	revision int64
}

// newGadgets returns a custom resource.
func newGadgets() *resource {
	return &resource{
		name:          "custom resource",
		groupResource: schema.GroupResource{Group: env.FixtureGroup, Resource: "gadgets"},
		groupVersion:  env.FixtureGroup + "/v1",
		kind:          "Gadget",
		namespaced:    true,
		etcdPrefix:    "/registry/" + env.FixtureGroup + "/gadgets/",
		fieldPath:     "spec.color",
		values:        map[fieldValue]string{chosen: "red", other: "blue"},
		tokens:        map[tokenAt]takenToken{},
	}
}

// newAnnexedGroups returns the resource that is compiled into annex.
func newAnnexedGroups() *resource {
	return &resource{
		name:          "AnnexedGroup",
		groupResource: schema.GroupResource{Group: "kubeannex.io", Resource: "annexedgroups"},
		groupVersion:  "kubeannex.io/v1alpha1",
		kind:          "AnnexedGroup",
		nameSuffix:    ".example.com",
		etcdPrefix:    "/registry/kubeannex.io/annexedgroups/",
		fieldPath:     "status.phase",
		values:        map[fieldValue]string{chosen: "Pending", other: "Copying"},
		fieldInStatus: true,
		tokens:        map[tokenAt]takenToken{},
	}
}

// knobCRD defines a copy of the gadgets that the history does not touch.
func knobCRD() (*apiextensionsv1.CustomResourceDefinition, error) {
	crd, err := env.GadgetCRD()
	if err != nil {
		return nil, err
	}
	crd.Name = "knobs." + env.FixtureGroup
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{
		Kind: "Knob", ListKind: "KnobList", Plural: "knobs", Singular: "knob",
	}
	return crd, nil
}

// knobPath returns the collection of knobs of a namespace, or of all of them.
func knobPath(version, namespace string) string {
	r := resource{groupVersion: env.FixtureGroup + "/" + version}
	r.groupResource.Resource = "knobs"
	return r.path(namespace)
}

// path returns the collection of a namespace, or of all of them.
func (r *resource) path(namespace string) string {
	root := "/apis/" + r.groupVersion + "/"
	if namespace != "" {
		root += "namespaces/" + namespace + "/"
	}
	return root + r.groupResource.Resource
}

// objectOf reads the parts that the tests compare.
func (r *resource) objectOf(i item) (object, error) {
	o := object{namespace: i.Metadata.Namespace, name: i.Metadata.Name, team: i.Metadata.Labels[teamLabel], field: i.Spec.Color}
	if r.fieldInStatus {
		o.field = i.Status.Phase
	}
	var err error
	o.revision, err = strconv.ParseInt(i.Metadata.ResourceVersion, 10, 64)
	return o, err
}

// chosen returns the object that queries ask for by name, as it is now.
func (r *resource) chosen() object {
	for _, w := range r.journal {
		if w.object.name == "beta"+r.nameSuffix {
			o, _ := find(r.journal.at(r.journal[len(r.journal)-1].object.revision), w.object.key())
			return o
		}
	}
	return object{}
}

// apply makes a change and writes it into the journal.
func (r *resource) apply(ctx context.Context, w *World, c change) error {
	namespace := c.namespace
	if !r.namespaced {
		namespace = ""
	}
	name := c.name + r.nameSuffix
	collection := r.path(namespace)
	single := collection + "/" + name
	labels := map[string]any{"metadata": map[string]any{"labels": map[string]any{teamLabel: c.team}}}
	var got item
	var err error
	switch {
	case c.create:
		body := map[string]any{"apiVersion": r.groupVersion, "kind": r.kind, "metadata": map[string]any{
			"name": name, "labels": map[string]any{teamLabel: c.team},
		}, "spec": map[string]any{}}
		if !r.fieldInStatus {
			body["spec"] = map[string]any{"color": r.values[chosen]}
		}
		err = w.must(ctx, http.MethodPost, collection, body, &got)
	case c.remove:
		return r.remove(ctx, w, namespace, name)
	case c.team != "":
		err = r.patch(ctx, w, single, labels, &got)
	case r.fieldInStatus:
		err = r.patch(ctx, w, single+"/status", map[string]any{"status": map[string]any{"phase": r.values[c.field]}}, &got)
	default:
		err = r.patch(ctx, w, single, map[string]any{"spec": map[string]any{"color": r.values[c.field]}}, &got)
	}
	if err != nil {
		return err
	}
	written, err := r.objectOf(got)
	if err != nil {
		return err
	}
	r.journal = append(r.journal, write{object: written})
	return nil
}

func (r *resource) patch(ctx context.Context, w *World, path string, body any, out *item) error {
	return w.must(ctx, http.MethodPatch, path, body, out, "Content-Type", "application/merge-patch+json")
}

// remove deletes an object. The answer does not tell the revision, etcd does.
func (r *resource) remove(ctx context.Context, w *World, namespace, name string) error {
	from, err := w.etcdRevision(ctx)
	if err != nil {
		return err
	}
	if err := w.must(ctx, http.MethodDelete, r.path(namespace)+"/"+name, nil, nil); err != nil {
		return err
	}
	removed := object{namespace: namespace, name: name}
	if removed.revision, err = w.deletionRevision(ctx, r.etcdPrefix+removed.key(), from); err != nil {
		return err
	}
	r.journal = append(r.journal, write{object: removed, deleted: true})
	return nil
}

// takeTokens lists the first object of the resource and, when it has any, of
// the first namespace, and keeps the continue tokens.
func (r *resource) takeTokens(ctx context.Context, w *World, kind token) error {
	namespaces := []string{""}
	if r.namespaced {
		namespaces = append(namespaces, "a")
	}
	for _, namespace := range namespaces {
		var page itemList
		if err := w.must(ctx, http.MethodGet, r.path(namespace)+"?limit=1", nil, &page); err != nil {
			return err
		}
		if len(page.Items) != 1 || page.Items[0].Metadata.Name != "alpha"+r.nameSuffix || page.Metadata.Continue == "" {
			return fmt.Errorf("the first page of %s is %v with token %q, want alpha and a token", r.name, page.Items, page.Metadata.Continue)
		}
		revision, err := strconv.ParseInt(page.Metadata.ResourceVersion, 10, 64)
		if err != nil {
			return fmt.Errorf("resourceVersion of the first page of %s: %w", r.name, err)
		}
		r.tokens[tokenAt{kind, namespace}] = takenToken{text: page.Metadata.Continue, revision: revision}
		latest, err := tokenWithRevision(page.Metadata.Continue, -1)
		if err != nil {
			return err
		}
		r.tokens[tokenAt{tokenLatest, namespace}] = takenToken{text: latest}
	}
	return nil
}

// tokenContent is what a continue token says (k8s.io/apiserver pkg/storage/continue.go).
type tokenContent struct {
	APIVersion string `json:"v"`
	Revision   int64  `json:"rv"`
	Start      string `json:"start"`
}

func decodeToken(text string) (tokenContent, error) {
	var content tokenContent
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return content, err
	}
	return content, json.Unmarshal(data, &content)
}

func tokenWithRevision(text string, revision int64) (string, error) {
	content, err := decodeToken(text)
	if err != nil {
		return "", err
	}
	content.Revision = revision
	data, err := json.Marshal(content)
	return base64.RawURLEncoding.EncodeToString(data), err
}

// selectors returns every way to restrict a query of the resource.
func (r *resource) selectors() []selector {
	everything := func(object) bool { return true }
	beta := "beta" + r.nameSuffix
	isBeta := func(o object) bool { return o.name == beta }
	inA := func(o object) bool { return o.namespace == "a" }
	all := []selector{
		{name: "none", matches: everything},
		{name: "label", label: teamLabel + "=a", matches: func(o object) bool { return o.team == "a" }},
		{name: "field", field: r.fieldPath + "=" + r.values[chosen], matches: func(o object) bool { return o.field == r.values[chosen] }},
		{name: "unsupported field", field: "spec.nonsense=x", matches: everything, unsupported: true},
	}
	if !r.namespaced {
		return append(all,
			selector{name: "name", field: "metadata.name=" + beta, matches: isBeta, key: beta},
			selector{name: "namespace field", field: "metadata.namespace=a", matches: everything, unsupported: true})
	}
	return append(all,
		selector{name: "namespace path", namespace: "a", matches: inA},
		selector{name: "namespace field", field: "metadata.namespace=a", matches: inA, prefix: "a"},
		selector{name: "name", field: "metadata.name=" + beta, matches: isBeta},
		selector{name: "name in namespace path", namespace: "a", field: "metadata.name=" + beta, matches: isBeta, key: "a/" + beta},
		selector{name: "name and namespace fields", field: "metadata.name=" + beta + ",metadata.namespace=a", matches: isBeta, key: "a/" + beta, prefix: "a"})
}
