// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/datadir"
)

func TestDamagedDataIsRefusedAndLeftAlone(t *testing.T) {
	sound := makeSoundData(t)
	cases := map[string]struct {
		damage func(t *testing.T, dir string)
		want   string
	}{
		"database cut in half":           {damage: onDatabase(cutInHalf), want: "reading database"},
		"database without its last page": {damage: onDatabase(cutLastByte), want: "file has"},
		"database of garbage":            {damage: onDatabase(garbage), want: "invalid database"},
		"database of zeroes":             {damage: onDatabase(zeroes), want: "invalid database"},
		"database empty":                 {damage: onDatabase(empty), want: "opening database"},
		"database missing":               {damage: onDatabase(remove), want: "database is missing"},
		"database with garbage inside":   {damage: onDatabase(garbageInside), want: "Page expected to be"},
		"database with zeroes inside":    {damage: onDatabase(zeroesInside), want: "Page expected to be"},
		"log of garbage":                 {damage: onLog(garbage), want: "write-ahead log"},
		"log empty":                      {damage: onLog(empty), want: "write-ahead log"},
		"log cut in half":                {damage: onLog(cutInHalf), want: "ends at entry"},
		"log with one changed bit":       {damage: onLog(flipBit), want: "crc mismatch"},
		"log missing":                    {damage: onLog(remove), want: "write-ahead log"},
		"member directory is a file": {want: "database is missing", damage: func(t *testing.T, dir string) {
			member := filepath.Join(dir, "member")
			must(t, os.RemoveAll(member), os.WriteFile(member, []byte("x"), 0o600))
		}},
		"member directory missing": {want: "database is missing", damage: func(t *testing.T, dir string) {
			must(t, os.RemoveAll(filepath.Join(dir, "member")), os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600))
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, "etcd")
			must(t, os.CopyFS(dir, os.DirFS(sound)))
			tc.damage(t, dir)
			before := digests(t, dir)

			s, err := Start(t.Context(), Options{RootDir: root})
			if err == nil {
				_ = s.Close()
				t.Fatal("Start() accepts the directory")
			}
			assertOneLine(t, err)
			for _, want := range []string{dir, tc.want, "restore it from a backup", "move it aside"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("Start() = %v, want %q in it", err, want)
				}
			}
			if diff := cmp.Diff(before, digests(t, dir)); diff != "" {
				t.Errorf("files after a refused start (-before +after):\n%s", diff)
			}
		})
	}
}

func TestTornLogTailIsAccepted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "etcd")
	must(t, os.CopyFS(dir, os.DirFS(makeSoundData(t))))
	log := lastLog(t, dir)
	content, err := os.ReadFile(log)
	must(t, err)
	// The start of a record that was never finished: a length, then zeroes.
	end := len(bytes.TrimRight(content, "\x00"))
	end += 8 - end%8
	content[end] = 200
	must(t, os.WriteFile(log, content, 0o600))

	s := startServer(t, Options{RootDir: filepath.Dir(dir)})
	got, err := newClient(t, s.Endpoints()).Get(t.Context(), "key-", clientv3.WithPrefix(), clientv3.WithCountOnly())
	must(t, err)
	if got.Count != soundKeys {
		t.Errorf("%d keys, want %d", got.Count, soundKeys)
	}
}

const soundKeys = 500

// makeSoundData returns a data directory that holds soundKeys keys and was closed.
func makeSoundData(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	s := startServer(t, Options{RootDir: root})
	client := newClient(t, s.Endpoints())
	for i := range soundKeys / 100 {
		var puts []clientv3.Op
		for j := range 100 {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("key-%d-%d", i, j), strings.Repeat("v", 700)))
		}
		_, err := client.Txn(t.Context()).Then(puts...).Commit()
		must(t, err)
	}
	must(t, client.Close())
	closeServer(t, s)
	return s.options.dataDir()
}

type damage func(t *testing.T, path string, content []byte) []byte

func onDatabase(change damage) func(*testing.T, string) {
	return func(t *testing.T, dir string) { apply(t, datadir.ToBackendFileName(dir), change) }
}

func onLog(change damage) func(*testing.T, string) {
	return func(t *testing.T, dir string) { apply(t, lastLog(t, dir), change) }
}

func lastLog(t *testing.T, dir string) string {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(datadir.ToWALDir(dir), "*.wal"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no log in %s: %v", dir, err)
	}
	return logs[len(logs)-1]
}

func apply(t *testing.T, path string, change damage) {
	t.Helper()
	content, err := os.ReadFile(path)
	must(t, err)
	if content = change(t, path, content); content != nil {
		must(t, os.WriteFile(path, content, 0o600))
	}
}

func empty(*testing.T, string, []byte) []byte { return []byte{} }

func remove(t *testing.T, path string, _ []byte) []byte {
	must(t, os.Remove(path))
	return nil
}

func garbage(_ *testing.T, _ string, content []byte) []byte {
	for i := range content {
		content[i] = byte(i*i*7 + i/251)
	}
	return content
}

func zeroes(_ *testing.T, _ string, content []byte) []byte { return make([]byte, len(content)) }

func cutInHalf(_ *testing.T, _ string, content []byte) []byte {
	return content[:len(bytes.TrimRight(content, "\x00"))/2]
}

// cutLastByte keeps all that is in use but the last byte; a database file has unused room at its end.
func cutLastByte(_ *testing.T, _ string, content []byte) []byte {
	const pageSize = 4096
	for end := len(content); end > pageSize; end -= pageSize {
		if len(bytes.TrimRight(content[end-pageSize:end], "\x00")) > 0 {
			return content[:end-1]
		}
	}
	return content[:pageSize]
}

func garbageInside(t *testing.T, path string, content []byte) []byte {
	copy(content[3*4096:], garbage(t, path, make([]byte, len(content)-3*4096)))
	return content
}

func zeroesInside(_ *testing.T, _ string, content []byte) []byte {
	clear(content[3*4096:])
	return content
}

func flipBit(_ *testing.T, _ string, content []byte) []byte {
	content[len(bytes.TrimRight(content, "\x00"))/2] ^= 4
	return content
}

// digests maps every path below a directory to its mode and content.
func digests(t *testing.T, root string) map[string]string {
	t.Helper()
	result := map[string]string{}
	must(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil || entry.IsDir() {
			result[path] = fmt.Sprint(info.Mode())
			return err
		}
		content, err := os.ReadFile(path)
		result[path] = fmt.Sprintf("%s %d %x", info.Mode(), len(content), sha256.Sum256(content))
		return err
	}))
	return result
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}
