// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compact

import "strings"

const metaGroup = ";g=meta.k8s.io"

// as asks for a form of an object, such as a table.
func as(mediaType, kind, version string) string {
	return mediaType + ";as=" + kind + ";v=" + version + metaGroup
}

const (
	jsonType     = "application/json"
	yamlType     = "application/yaml"
	protobufType = "application/vnd.kubernetes.protobuf"
	cborType     = "application/cbor"
)

// accepts are what clients accept, by name. The form of metadata is that of one object or of a list.
func accepts(metadata string) map[string]string {
	return map[string]string{
		"JSON":                        jsonType,
		"YAML":                        yamlType,
		"protobuf":                    protobufType,
		"CBOR":                        cborType,
		"CBOR sequence":               "application/cbor-seq",
		"plain text":                  "text/plain",
		"anything":                    "*/*",
		"any application":             "application/*",
		"nothing said":                "-",
		"browser":                     "text/html,application/xhtml+xml,*/*;q=0.8",
		"no form":                     "a/b/c;;,",
		"protobuf, then JSON":         protobufType + "," + jsonType,
		"CBOR, then anything":         cborType + ",*/*",
		"YAML less than JSON":         yamlType + ";q=0.5," + jsonType + ";q=0.9",
		"JSON less than YAML":         jsonType + ";q=0.1," + yamlType + ";q=0.9",
		"JSON refused":                jsonType + ";q=0",
		"JSON with parameters":        jsonType + ";charset=utf-8;colour=red",
		"JSON stream":                 jsonType + ";stream=watch",
		"JSON, pretty as a parameter": jsonType + ";pretty=1",
		"table":                       as(jsonType, "Table", "v1"),
		"old table":                   as(jsonType, "Table", "v1beta1"),
		"table of the future":         as(jsonType, "Table", "v9"),
		"table in YAML":               as(yamlType, "Table", "v1"),
		"table in protobuf":           as(protobufType, "Table", "v1"),
		"kubectl":                     strings.Join([]string{as(jsonType, "Table", "v1"), as(jsonType, "Table", "v1beta1"), jsonType}, ","),
		"metadata":                    as(jsonType, metadata, "v1"),
		"old metadata":                as(jsonType, metadata, "v1beta1"),
		"metadata in YAML":            as(yamlType, metadata, "v1"),
		"metadata in protobuf":        as(protobufType, metadata, "v1"),
		"metadata informer":           as(protobufType, metadata, "v1") + "," + as(jsonType, metadata, "v1") + "," + jsonType,
		"unknown form":                as(jsonType, "Foo", "v1"),
		"a form without its version":  jsonType + ";as=Foo",
		"unknown form, then JSON":     as(jsonType, "Foo", "v1") + "," + jsonType,
	}
}

// served are those of accepts that differ in what they get.
func served(metadata string) map[string]string {
	all, some := accepts(metadata), map[string]string{}
	for _, name := range []string{"JSON", "YAML", "table", "old table", "table in YAML", "metadata", "old metadata", "metadata in protobuf"} {
		some[name] = all[name]
	}
	return some
}
