// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package corpus

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// document is one YAML document of a file.
type document struct {
	*unstructured.Unstructured

	// source is the file, relative to its module, and the number of the document in it.
	source string
}

// gk returns the group and kind; a version is not looked at.
func (d document) gk() schema.GroupKind {
	return d.GroupVersionKind().GroupKind()
}

// readFiles returns the objects of all YAML files that match one of the patterns.
// A pattern that names a folder stands for every file below it. Documents that
// are no object are left out: comments, kustomizations without a kind, and files
// that are no YAML at all, such as templates. The caller counts what it needs.
func readFiles(root string, patterns ...string) ([]document, error) {
	var files []string
	for _, pattern := range patterns {
		matches, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		for _, match := range matches {
			below, err := yamlFiles(match)
			if err != nil {
				return nil, err
			}
			files = append(files, below...)
		}
	}
	slices.Sort(files)
	var documents []document
	for _, file := range slices.Compact(files) {
		found, err := readFile(root, file)
		if err != nil {
			return nil, err
		}
		documents = append(documents, found...)
	}
	return documents, nil
}

func yamlFiles(path string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		extension := filepath.Ext(name)
		if !entry.IsDir() && (extension == ".yaml" || extension == ".yml") {
			files = append(files, name)
		}
		return nil
	})
	return files, err
}

func readFile(root, file string) ([]document, error) {
	name, err := filepath.Rel(root, file)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var documents []document
	for reader, i := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))), 1; ; i++ {
		part, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		if object := decodeObject(part); object != nil {
			documents = append(documents, document{object, fmt.Sprintf("%s#%d", name, i)})
		}
	}
}

// decodeObject returns nil for what is no object with a kind.
func decodeObject(data []byte) *unstructured.Unstructured {
	text, err := yaml.YAMLToJSON(data)
	if err != nil || !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		return nil
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(text); err != nil {
		return nil
	}
	return object
}

// definition is a CustomResourceDefinition with what the tests need to know of it.
type definition struct {
	document

	module   string
	group    string
	kind     string
	plural   string
	cluster  bool
	served   []string
	storage  string
	revision int
}

func (d *definition) resource(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: d.group, Version: version, Resource: d.plural}
}

func readDefinitions(module, root string, patterns ...string) ([]definition, error) {
	documents, err := readFiles(root, patterns...)
	if err != nil {
		return nil, err
	}
	var definitions []definition
	for _, found := range documents {
		if found.GetKind() != "CustomResourceDefinition" {
			continue
		}
		definitions = append(definitions, newDefinition(module, found))
	}
	return definitions, nil
}

func newDefinition(module string, found document) definition {
	text := func(path ...string) string {
		value, _, _ := unstructured.NestedString(found.Object, path...)
		return value
	}
	d := definition{
		document: found, module: module,
		group: text("spec", "group"), kind: text("spec", "names", "kind"), plural: text("spec", "names", "plural"),
		cluster: strings.EqualFold(text("spec", "scope"), "Cluster"),
	}
	for _, version := range versionsOf(found.Unstructured) {
		name, _ := version["name"].(string)
		if served, _ := version["served"].(bool); served {
			d.served = append(d.served, name)
		}
		if storage, _ := version["storage"].(bool); storage {
			d.storage = name
		}
	}
	return d
}

// versionsOf returns spec.versions, shared with the object.
func versionsOf(crd *unstructured.Unstructured) []map[string]any {
	return mapsAt(crd.Object, "spec", "versions")
}

func gkOf(group, kind string) schema.GroupKind { return schema.GroupKind{Group: group, Kind: kind} }

func compareKinds(a, b schema.GroupKind) int { return strings.Compare(a.String(), b.String()) }
