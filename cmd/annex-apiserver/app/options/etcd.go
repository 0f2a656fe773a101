// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/klog/v2"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/apiserver"
	etcdclient "github.com/kubeannex/annex/pkg/etcd/client"
	"github.com/kubeannex/annex/pkg/etcd/embedded"
	"github.com/kubeannex/annex/pkg/etcd/revision"
	"github.com/kubeannex/annex/pkg/etcd/space"
)

// EmbeddedServers is the value of --etcd-servers that stands for the etcd
// inside the process.
const EmbeddedServers = "embedded"

// defaultEtcdPrefix is the one of kube-apiserver, so that etcd tools find keys where they expect them.
const defaultEtcdPrefix = "/registry"

// EtcdOptions say where objects are stored.
type EtcdOptions struct {
	// Generic are the flags that every API server has.
	Generic *genericoptions.EtcdOptions
	// Embedded configures the etcd inside the process.
	Embedded embedded.Options
	// RevisionFloor is the revision below which an etcd is reported as not
	// ready. A new embedded etcd is born at it. Zero switches the check off.
	RevisionFloor int64

	// isEmbedded is known after complete, when the name has been taken out of the server list.
	isEmbedded bool
}

// NewEtcdOptions returns the default values.
func NewEtcdOptions() *EtcdOptions {
	config := storagebackend.NewDefaultConfig(defaultEtcdPrefix, apiserver.Codecs.LegacyCodec(kubeannexv1alpha1.SchemeGroupVersion))
	config.Transport.ServerList = []string{EmbeddedServers}
	// It also gives discovery its storageVersionHash.
	config.EncodeVersioner = runtime.NewMultiGroupVersioner(kubeannexv1alpha1.SchemeGroupVersion, schema.GroupKind{Group: kubeannexv1alpha1.SchemeGroupVersion.Group})
	return &EtcdOptions{
		Generic: genericoptions.NewEtcdOptions(config),
		Embedded: embedded.Options{
			QuotaBackendBytes: embedded.DefaultQuotaBackendBytes,
		},
		RevisionFloor: embedded.DefaultRevisionFloor,
	}
}

// AddFlags adds the flags of this section.
func (o *EtcdOptions) AddFlags(fs *pflag.FlagSet) {
	o.addGenericFlags(fs)
	fs.Lookup("etcd-servers").Usage = "List of etcd servers to connect with (scheme://ip:port), comma separated. " +
		"'" + EmbeddedServers + "' runs an etcd inside the process, with its data in --root-dir."
	fs.Lookup("etcd-servers-overrides").Usage = "Per-resource etcd servers overrides, comma separated. " +
		"The individual override format: group/resource#servers, where servers are URLs, semicolon separated. " +
		"It applies to custom resources as well as to the resources of Annex; they use the --etcd-cafile, --etcd-certfile and --etcd-keyfile."
	fs.Int64Var(&o.RevisionFloor, "etcd-revision-floor", o.RevisionFloor,
		"The revision that every etcd must have reached for the server to be ready, and at which a new embedded etcd starts. "+
			"It keeps the revisions of Annex above those of any cluster, so that no client mistakes an old one for a new one. 0 switches the check off.")
	fs.Int64Var(&o.Embedded.QuotaBackendBytes, "embedded-etcd-quota-bytes", o.Embedded.QuotaBackendBytes,
		"The size of the embedded etcd's database at which it refuses further writes.")
	fs.UintVar(&o.Embedded.MaxRequestBytes, "embedded-etcd-max-request-bytes", o.Embedded.MaxRequestBytes,
		"The largest write that the embedded etcd accepts. 0 means etcd's own default, 1.5 MiB.")
}

// addGenericFlags adds upstream's flags but those that have no effect here: the
// cache is switched on or off as a whole, and objects are stored as JSON.
func (o *EtcdOptions) addGenericFlags(fs *pflag.FlagSet) {
	all := pflag.NewFlagSet("etcd", pflag.ContinueOnError)
	o.Generic.AddFlags(all)
	all.VisitAll(func(f *pflag.Flag) {
		switch f.Name {
		case "watch-cache-sizes", "default-watch-cache-size", "storage-media-type":
		default:
			fs.AddFlag(f)
		}
	})
}

func (o *EtcdOptions) complete(rootDir string) {
	o.Embedded.RootDir = rootDir
	o.Embedded.RevisionFloor = o.RevisionFloor
	if o.Embedded.QuotaBackendBytes == 0 {
		o.Embedded.QuotaBackendBytes = embedded.DefaultQuotaBackendBytes
	}
	if o.Embedded.MaxRequestBytes == 0 {
		o.Embedded.MaxRequestBytes = embedded.DefaultMaxRequestBytes
	}
	o.isEmbedded = slices.Equal(o.Generic.StorageConfig.Transport.ServerList, []string{EmbeddedServers})
}

// Validate returns everything that is wrong with the flags of this section.
func (o *EtcdOptions) Validate() []error {
	errs := o.Generic.Validate()
	errs = append(errs, o.validateOverrides()...)
	if o.RevisionFloor < 0 {
		errs = append(errs, fmt.Errorf("--etcd-revision-floor is %d: it must not be negative", o.RevisionFloor))
	}
	transport := o.Generic.StorageConfig.Transport
	if (transport.CertFile == "") != (transport.KeyFile == "") {
		errs = append(errs, errors.New("--etcd-certfile and --etcd-keyfile belong together: give both or none"))
	}
	if !o.isEmbedded {
		if slices.Contains(transport.ServerList, EmbeddedServers) {
			errs = append(errs, fmt.Errorf("--etcd-servers names %q beside other servers: use either the embedded etcd or external ones", EmbeddedServers))
		}
		return errs
	}
	if err := o.Embedded.Validate(); err != nil {
		errs = append(errs, err)
	}
	hasTLS := transport.CertFile != "" || transport.KeyFile != "" || transport.TrustedCAFile != ""
	if hasTLS && len(o.Generic.EtcdServersOverrides) == 0 {
		errs = append(errs, errors.New("--etcd-cafile, --etcd-certfile and --etcd-keyfile need external servers: set --etcd-servers or drop them"))
	}
	return errs
}

// validateOverrides refuses the name of the embedded etcd where only URLs mean something.
func (o *EtcdOptions) validateOverrides() []error {
	overrides, err := genericoptions.ParseEtcdServersOverrides(o.Generic.EtcdServersOverrides)
	if err != nil {
		return nil // the generic options report it
	}
	var errs []error
	for _, override := range overrides {
		if slices.Contains(override.Servers, EmbeddedServers) {
			errs = append(errs, fmt.Errorf("--etcd-servers-overrides names %q for %s: an override takes URLs of etcd servers; leave out what the default etcd is to keep",
				EmbeddedServers, override.GroupResource))
		}
	}
	return errs
}

// LockRootDir makes the root directory the server's own; the caller releases
// it. It returns nil where nothing is kept there, as may be in a cluster.
func (o CompletedOptions) LockRootDir() (*embedded.RootLock, error) {
	keepsCertificate := o.SecureServing.ServerCert.CertKey.CertFile == "" &&
		o.SecureServing.ServerCert.CertDirectory == filepath.Join(o.Standalone.RootDir, certificatesDir)
	if !o.Etcd.isEmbedded && !o.Standalone.Enabled && !keepsCertificate {
		return nil, nil
	}
	if err := os.MkdirAll(o.Standalone.RootDir, 0o700); err != nil {
		return nil, fmt.Errorf("creating root directory, choose another --root-dir or mend its permissions: %w", err)
	}
	return embedded.LockRootDir(o.Standalone.RootDir)
}

// StartEmbeddedEtcd starts the etcd inside the process and points the storage
// to it. It returns nil when external servers are used. The caller closes it,
// and releases the lock of the root directory after that.
func (o CompletedOptions) StartEmbeddedEtcd(ctx context.Context, lock *embedded.RootLock) (*embedded.Server, error) {
	if !o.Etcd.isEmbedded {
		return nil, nil
	}
	options := o.Etcd.Embedded
	options.Lock = lock
	server, err := embedded.Start(ctx, options)
	if err != nil {
		return nil, err
	}
	o.Etcd.Generic.StorageConfig.Transport.ServerList = server.Endpoints()
	return server, nil
}

// etcdCheckTimeout is how long an etcd may take to answer before the server gives up starting.
const etcdCheckTimeout = 10 * time.Second

// CheckEtcd looks whether etcd can be reached, and logs whether it is full and
// whether its revision floor is met. Of an override only the log tells: its resources
// must not take those of all others with them.
func (o CompletedOptions) CheckEtcd(ctx context.Context, config *apiserver.Config) error {
	locations, err := o.Etcd.locations(&config.GenericConfig.Config)
	if err != nil {
		return err
	}
	for i, transport := range locations.transports() {
		isDefault := i == 0
		err := o.Etcd.checkLocation(ctx, transport, isDefault && o.Etcd.isEmbedded)
		if err != nil && isDefault {
			return err
		}
		if err != nil {
			klog.FromContext(ctx).Error(err, "An etcd of --etcd-servers-overrides cannot be used; its resources will fail")
		}
	}
	return nil
}

func (o *EtcdOptions) checkLocation(ctx context.Context, transport storagebackend.TransportConfig, isEmbedded bool) error {
	if err := checkTransport(transport); err != nil {
		return err
	}
	client, err := etcdclient.New(ctx, transport)
	if err != nil {
		return fmt.Errorf("%w: correct --etcd-servers, --etcd-cafile, --etcd-certfile and --etcd-keyfile", err)
	}
	defer client.Close() //nolint:errcheck // it was only read from
	checkCtx, cancel := context.WithTimeout(ctx, etcdCheckTimeout)
	defer cancel()
	result, err := revision.Check(checkCtx, client, o.Generic.StorageConfig.Prefix, o.RevisionFloor)
	if err != nil {
		return fmt.Errorf("%w: start etcd or correct --etcd-servers and its certificates", err)
	}
	logFloor(klog.FromContext(ctx), result)
	if isEmbedded {
		// Defragmenting a large database takes its time.
		return bearFull(ctx, space.Recover(ctx, client, o.embeddedLimits()))
	}
	return bearFull(ctx, space.Check(checkCtx, client))
}

// bearFull lets a server start on an etcd that refuses writes: those who read must not suffer,
// and deletions may be what makes room.
func bearFull(ctx context.Context, err error) error {
	var full *space.FullError
	if !errors.As(err, &full) {
		return err
	}
	klog.FromContext(ctx).Error(full, "Etcd is full: the server starts all the same, reads and deletions of objects without finalizers work, other writes fail")
	return nil
}

func logFloor(logger klog.Logger, result revision.Result) {
	if err := result.Err(); err != nil {
		logger.Error(err, "Etcd revision floor is not met; the server will not be ready")
		return
	}
	logger.Info("Etcd revision floor is met", "servers", result.Servers, "revision", result.Current, "floor", result.Floor)
}

func (o *EtcdOptions) embeddedLimits() space.Limits {
	return space.Limits{Quota: o.Embedded.QuotaBackendBytes, Request: int64(o.Embedded.MaxRequestBytes)}
}

// checkFiles refuses files that storage would fail with. Certificates that only
// overrides use are not looked at: see CheckEtcd.
func (o *EtcdOptions) checkFiles() error {
	if !o.isEmbedded {
		if err := checkTransport(o.Generic.StorageConfig.Transport); err != nil {
			return err
		}
	}
	if file := o.Generic.EncryptionProviderConfigFilepath; file != "" {
		if _, err := os.ReadFile(file); err != nil {
			return fmt.Errorf("reading the encryption configuration: %w: correct --encryption-provider-config", err)
		}
	}
	return nil
}

// checkTransport refuses files that connections to etcd would fail with.
func checkTransport(transport storagebackend.TransportConfig) error {
	if err := checkCertificate("--etcd-certfile", transport.CertFile); err != nil {
		return err
	}
	if err := checkCertificate("--etcd-cafile", transport.TrustedCAFile); err != nil {
		return err
	}
	if transport.CertFile != "" || transport.KeyFile != "" {
		if _, err := tls.LoadX509KeyPair(transport.CertFile, transport.KeyFile); err != nil {
			return fmt.Errorf("reading --etcd-certfile and --etcd-keyfile: %w: correct the flags or the files", err)
		}
	}
	return nil
}

// etcdLocations are the servers of each resource.
type etcdLocations struct {
	defaults  storagebackend.TransportConfig
	overrides map[schema.GroupResource]storagebackend.TransportConfig
}

// locations returns the servers of each resource. Connections to external ones
// take the way and carry the traces that the server is configured for.
func (o *EtcdOptions) locations(config *genericapiserver.Config) (etcdLocations, error) {
	external := o.Generic.StorageConfig.Transport
	external.TracerProvider = config.TracerProvider
	if config.EgressSelector != nil {
		external.EgressLookup = config.EgressSelector.Lookup
	}
	locations := etcdLocations{defaults: external, overrides: map[schema.GroupResource]storagebackend.TransportConfig{}}
	if o.isEmbedded {
		// The certificates belong to the external servers of the overrides.
		locations.defaults.CertFile, locations.defaults.KeyFile, locations.defaults.TrustedCAFile = "", "", ""
		locations.defaults.EgressLookup = nil
	}
	overrides, err := genericoptions.ParseEtcdServersOverrides(o.Generic.EtcdServersOverrides)
	if err != nil {
		return etcdLocations{}, err
	}
	for _, override := range overrides {
		transport := external
		transport.ServerList = override.Servers
		locations.overrides[override.GroupResource] = transport
	}
	return locations, nil
}

// of returns the servers of one resource.
func (l etcdLocations) of(resource schema.GroupResource) storagebackend.TransportConfig {
	if transport, ok := l.overrides[resource]; ok {
		return transport
	}
	return l.defaults
}

// transports returns every distinct location, the default one first.
func (l etcdLocations) transports() []storagebackend.TransportConfig {
	transports := []storagebackend.TransportConfig{l.defaults}
	resources := slices.SortedFunc(maps.Keys(l.overrides), func(a, b schema.GroupResource) int {
		return cmp.Compare(a.String(), b.String())
	})
	for _, resource := range resources {
		override := l.overrides[resource]
		known := slices.ContainsFunc(transports, func(t storagebackend.TransportConfig) bool {
			return sameServers(t.ServerList, override.ServerList)
		})
		if !known {
			transports = append(transports, override)
		}
	}
	return transports
}

// sameServers compares two lists whatever their order.
func sameServers(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}
