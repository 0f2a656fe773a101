// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNothingButAPrivateSocket(t *testing.T) {
	before := tcpListeners(t)
	root := filepath.Join(t.TempDir(), "root")
	s := startServer(t, Options{RootDir: root})

	got := map[string]fs.FileMode{}
	for _, path := range []string{"", "etcd", "run", "run/etcd.sock", lockFileName} {
		info, err := os.Stat(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		got[path] = info.Mode().Perm()
	}
	want := map[string]fs.FileMode{"": 0o700, "etcd": 0o700, "run": 0o700, "run/etcd.sock": 0o600, lockFileName: 0o600}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("file modes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, tcpListeners(t)); diff != "" {
		t.Errorf("TCP listeners of this process (-before +after):\n%s", diff)
	}
	if err := dialAs(otherUser, s.sockets.socket()); os.Geteuid() == 0 && !errors.Is(err, fs.ErrPermission) {
		t.Errorf("another user connecting to the socket: error is %v, want %v", err, fs.ErrPermission)
	}
	if err := dialAs(os.Geteuid(), s.sockets.socket()); err != nil {
		t.Errorf("this user connecting to the socket: %v", err)
	}
	if endpoint := s.Endpoints()[0]; !strings.HasPrefix(endpoint, "unix:///") {
		t.Errorf("endpoint is %s, want a unix socket", endpoint)
	}
}

// otherUser is the user id of nobody on most systems; any id but ours would do.
const otherUser = 65534

// dialAs connects to a socket with the file system rights of another user. Only root can take those; the
// thread that did is thrown away.
func dialAs(uid int, socket string) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		result <- func() error {
			if err := syscall.Setfsuid(uid); err != nil {
				return err
			}
			fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer func() { _ = syscall.Close(fd) }()
			return syscall.Connect(fd, &syscall.SockaddrUnix{Name: socket})
		}()
	}()
	return <-result
}

// tcpListeners returns the local ports on which this process listens, as the kernel lists them.
func tcpListeners(t *testing.T) []string {
	t.Helper()
	own := ownSockets(t)
	var ports []string
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		file, err := os.Open(table)
		if err != nil {
			t.Fatalf("this test reads the kernel's socket tables, run it on Linux: %v", err)
		}
		for scanner := bufio.NewScanner(file); scanner.Scan(); {
			// sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode
			fields := strings.Fields(scanner.Text())
			if len(fields) > 9 && fields[3] == "0A" && own[fields[9]] {
				ports = append(ports, portOf(t, fields[1]))
			}
		}
		_ = file.Close()
	}
	slices.Sort(ports)
	return ports
}

func ownSockets(t *testing.T) map[string]bool {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil || len(links) == 0 {
		t.Fatalf("this test reads /proc/self/fd, run it on Linux: %v", err)
	}
	inodes := map[string]bool{}
	for _, link := range links {
		target, _ := os.Readlink(link)
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			inodes[strings.TrimSuffix(inode, "]")] = true
		}
	}
	return inodes
}

func portOf(t *testing.T, hexAddress string) string {
	t.Helper()
	_, hexPort, _ := strings.Cut(hexAddress, ":")
	port, err := hex.DecodeString(hexPort)
	if err != nil || len(port) != 2 {
		t.Fatalf("unexpected address %q: %v", hexAddress, err)
	}
	return strconv.Itoa(int(port[0])<<8 | int(port[1]))
}

func TestTCPListenersSeesOne(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	want := fmt.Sprint(listener.Addr().(*net.TCPAddr).Port)
	if got := tcpListeners(t); !slices.Contains(got, want) {
		t.Errorf("tcpListeners() = %v, want %s among them", got, want)
	}
}
