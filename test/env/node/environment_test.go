// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"
)

func TestExpand(t *testing.T) {
	variables := map[string]string{"A": "1", "B": "$(A)"}
	for name, test := range map[string]struct{ text, want string }{
		"a variable in text":             {"--a=$(A):$(A)", "--a=1:1"},
		"a value is not looked at again": {"$(B)", "$(A)"},
		"an unknown variable stays":      {"$(C) $(A)", "$(C) 1"},
		"an escaped reference":           {"$$(A)", "$(A)"},
		"a lone sign":                    {"5$ $(A $", "5$ $(A $"},
		"nothing":                        {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := expand(test.text, variables); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestVolumeChangesAtOnce replaces the files of a volume: an open directory keeps
// the old ones, the names lead to the new ones, and names that have gone go.
func TestVolumeChangesAtOnce(t *testing.T) {
	v := &volume{dir: t.TempDir()}
	write := func(files map[string]string) {
		t.Helper()
		content := newPayload()
		for name, data := range files {
			content.files[name] = payloadFile{data: []byte(data), mode: fileMode(ptr.To[int32](0o440))}
		}
		if err := v.write(content, nil); err != nil {
			t.Fatal(err)
		}
	}
	read := func() map[string]string {
		files := map[string]string{}
		for _, name := range []string{"a", "b/c", "d"} {
			if data, err := os.ReadFile(filepath.Join(v.dir, name)); err == nil {
				files[name] = string(data)
			}
		}
		return files
	}
	for _, files := range []map[string]string{
		{"a": "1", "b/c": "2"},
		{"a": "3", "d": "4"},
		{"a": "3", "d": "4"},
		{},
		{"b/c": "5"},
	} {
		write(files)
		if diff := cmp.Diff(files, read()); diff != "" {
			t.Errorf("the volume differs (-want +got):\n%s", diff)
		}
	}
	entries, err := os.ReadDir(v.dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 3 {
		t.Errorf("the volume has %d entries, want ..data, its version and b: %v", len(entries), entries)
	}
}
