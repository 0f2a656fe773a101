// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/klog/v2"

	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
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
	config := storagebackend.NewDefaultConfig(defaultEtcdPrefix, apiserver.Codecs.LegacyCodec(v1alpha1.SchemeGroupVersion))
	config.Transport.ServerList = []string{EmbeddedServers}
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
	o.Generic.AddFlags(fs)
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

func (o *EtcdOptions) complete(rootDir string) {
	o.Embedded.RootDir = rootDir
	o.Embedded.RevisionFloor = o.RevisionFloor
	o.isEmbedded = slices.Equal(o.Generic.StorageConfig.Transport.ServerList, []string{EmbeddedServers})
}

// Validate returns everything that is wrong with the flags of this section.
func (o *EtcdOptions) Validate() []error {
	errs := o.Generic.Validate()
	if o.RevisionFloor < 0 {
		errs = append(errs, fmt.Errorf("--etcd-revision-floor is %d: it must not be negative", o.RevisionFloor))
	}
	transport := o.Generic.StorageConfig.Transport
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

// StartEmbeddedEtcd starts the etcd inside the process and points the storage
// to it. It returns nil when external servers are used. The caller closes it.
func (o CompletedOptions) StartEmbeddedEtcd(ctx context.Context) (*embedded.Server, error) {
	if !o.Etcd.isEmbedded {
		return nil, nil
	}
	// The life of etcd is ended by Close, after the last request, and not by the signal that stops the server.
	server, err := embedded.Start(context.WithoutCancel(ctx), o.Etcd.Embedded)
	if err != nil {
		return nil, err
	}
	o.Etcd.Generic.StorageConfig.Transport.ServerList = server.Endpoints()
	return server, nil
}

// etcdCheckTimeout is how long an etcd may take to answer before the server gives up starting.
const etcdCheckTimeout = 10 * time.Second

// CheckEtcd looks whether every etcd can be reached and written to, and logs
// whether its revision floor is met.
func (o CompletedOptions) CheckEtcd(ctx context.Context) error {
	locations, err := o.Etcd.locations()
	if err != nil {
		return err
	}
	for i, transport := range locations.transports() {
		isEmbedded := i == 0 && o.Etcd.isEmbedded
		if err := o.Etcd.checkLocation(ctx, transport, isEmbedded); err != nil {
			return err
		}
	}
	return nil
}

func (o *EtcdOptions) checkLocation(ctx context.Context, transport storagebackend.TransportConfig, isEmbedded bool) error {
	ctx, cancel := context.WithTimeout(ctx, etcdCheckTimeout)
	defer cancel()
	client, err := etcdclient.New(ctx, transport)
	if err != nil {
		return fmt.Errorf("%w: correct --etcd-servers, --etcd-cafile, --etcd-certfile and --etcd-keyfile", err)
	}
	defer client.Close() //nolint:errcheck // it was only read from
	result, err := revision.Check(ctx, client, o.Generic.StorageConfig.Prefix, o.RevisionFloor)
	if err != nil {
		return fmt.Errorf("%w: start etcd or correct --etcd-servers and its certificates", err)
	}
	if isEmbedded {
		err = space.Recover(ctx, client, o.Embedded.QuotaBackendBytes)
	} else {
		err = space.Check(ctx, client)
	}
	if err != nil {
		return err
	}
	logger := klog.FromContext(ctx)
	if err := result.Err(); err != nil {
		logger.Error(err, "Etcd revision floor is not met; the server will not be ready")
	} else {
		logger.Info("Etcd revision floor is met", "servers", result.Servers, "revision", result.Current, "floor", result.Floor)
	}
	return nil
}

// etcdLocations are the servers of each resource.
type etcdLocations struct {
	defaults  storagebackend.TransportConfig
	overrides map[schema.GroupResource]storagebackend.TransportConfig
}

func (o *EtcdOptions) locations() (etcdLocations, error) {
	external := o.Generic.StorageConfig.Transport
	locations := etcdLocations{defaults: external, overrides: map[schema.GroupResource]storagebackend.TransportConfig{}}
	if o.isEmbedded {
		// The certificates belong to the external servers of the overrides.
		locations.defaults.CertFile, locations.defaults.KeyFile, locations.defaults.TrustedCAFile = "", "", ""
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
	for _, resource := range sortedResources(l.overrides) {
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

func sortedResources(overrides map[schema.GroupResource]storagebackend.TransportConfig) []schema.GroupResource {
	resources := make([]schema.GroupResource, 0, len(overrides))
	for resource := range overrides {
		resources = append(resources, resource)
	}
	slices.SortFunc(resources, func(a, b schema.GroupResource) int {
		if a.String() < b.String() {
			return -1
		}
		return 1
	})
	return resources
}

// sameServers compares two lists whatever their order.
func sameServers(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}
