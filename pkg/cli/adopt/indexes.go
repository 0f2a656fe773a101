// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// indexes collects --resource and --index-label in the order of the command
// line: a label belongs to the resource before it.
type indexes struct {
	resources []kubeannexv1alpha1.AnnexedResourceSpec
	// current is the resource that the next label belongs to, -1 for none.
	current int
}

var (
	_ pflag.Value = (*resourceValue)(nil)
	_ pflag.Value = (*labelValue)(nil)
)

type resourceValue struct{ *indexes }

// Set implements pflag.Value.
func (v *resourceValue) Set(name string) error {
	if name == "" {
		return errors.New("name a resource by its plural, such as workflows")
	}
	v.choose(name)
	return nil
}

// String implements pflag.Value.
func (v *resourceValue) String() string { return "" }

// Type implements pflag.Value.
func (v *resourceValue) Type() string { return "resource" }

type labelValue struct{ *indexes }

// Set implements pflag.Value. "resource=label" needs no --resource before it: a
// label key has no equals sign.
func (v *labelValue) Set(value string) error {
	resource, label, both := strings.Cut(value, "=")
	if !both {
		label = value
	}
	switch {
	case label == "" || both && resource == "":
		return errors.New("write a label key, or resource=label key")
	case both:
		// The next plain label still belongs to the last --resource.
		previous := v.current
		v.choose(resource)
		v.add(label)
		v.current = previous
		return nil
	case v.current < 0:
		return fmt.Errorf("put --resource before it, or write RESOURCE=%s", value)
	}
	v.add(label)
	return nil
}

// String implements pflag.Value.
func (v *labelValue) String() string { return "" }

// Type implements pflag.Value.
func (v *labelValue) Type() string { return "key" }

func (x *indexes) choose(name string) {
	x.current = slices.IndexFunc(x.resources, func(r kubeannexv1alpha1.AnnexedResourceSpec) bool { return r.Resource == name })
	if x.current < 0 {
		x.current = len(x.resources)
		x.resources = append(x.resources, kubeannexv1alpha1.AnnexedResourceSpec{Resource: name})
	}
}

func (x *indexes) add(label string) {
	resource := &x.resources[x.current]
	if !slices.Contains(resource.IndexLabels, label) {
		resource.IndexLabels = append(resource.IndexLabels, label)
	}
}

// validate refuses a --resource that nothing is said about.
func (x *indexes) validate() error {
	for _, resource := range x.resources {
		if len(resource.IndexLabels) == 0 {
			return fmt.Errorf("--resource=%s has no --index-label: all resources of the group are adopted anyway, --resource only says what to index", resource.Resource)
		}
	}
	return nil
}

// merge puts the labels into a spec. What the spec says of other resources, and
// the watch index, stay. It reports whether anything changed.
func (x *indexes) merge(spec *kubeannexv1alpha1.AnnexedGroupSpec) bool {
	changed := false
	for _, wanted := range x.resources {
		i := slices.IndexFunc(spec.Resources, func(r kubeannexv1alpha1.AnnexedResourceSpec) bool { return r.Resource == wanted.Resource })
		if i < 0 {
			spec.Resources = append(spec.Resources, wanted)
			changed = true
		} else if !slices.Equal(spec.Resources[i].IndexLabels, wanted.IndexLabels) {
			spec.Resources[i].IndexLabels = wanted.IndexLabels
			changed = true
		}
	}
	return changed
}
