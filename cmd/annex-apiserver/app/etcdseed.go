// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/kubeannex/annex/pkg/command"
	"github.com/kubeannex/annex/pkg/etcd/embedded"
	"github.com/kubeannex/annex/pkg/etcd/seed"
)

const seedDescription = `Makes the data directory of a member of a new etcd cluster, with its first
revision at --revision-floor, and ends. It is run before each start of etcd, with
etcd's own flags, and does nothing where a directory has a member.

Members of a new cluster wait for each other. One that has run before and has
lost its directory is refused: it would have forgotten what it has voted for.
Remove it with etcdctl member remove, add it again with etcdctl member add, and
it joins. Give etcd --initial-cluster-state=existing in every case.`

// newSeedCommand returns the command that prepares members of an external etcd.
func newSeedCommand(ctx context.Context) *cobra.Command {
	opts := seed.Options{InitialClusterToken: "etcd-cluster", RevisionFloor: embedded.DefaultRevisionFloor}
	logOptions := logs.NewOptions()
	cmd := &cobra.Command{
		Use:   "etcd-seed",
		Short: "Make the data directory of a member of a new etcd cluster.",
		Long:  seedDescription,
		Args:  command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := command.ApplyLogs(cmd, logOptions); err != nil {
				return err
			}
			if errs := opts.Validate(); len(errs) != 0 {
				return utilerrors.NewAggregate(errs)
			}
			return seed.Run(ctx, opts)
		},
	}
	var sections cliflag.NamedFlagSets
	addSeedFlags(sections.FlagSet("member"), &opts)
	logsapi.AddFlags(logOptions, sections.FlagSet("logs"))
	command.AddFlags(cmd, sections)
	return cmd
}

func addSeedFlags(fs *pflag.FlagSet, opts *seed.Options) {
	fs.StringVar(&opts.DataDir, "data-dir", opts.DataDir, "The data directory of the member: a folder below the mount point of its volume.")
	fs.StringVar(&opts.Name, "name", opts.Name, "The name of the member.")
	fs.StringVar(&opts.InitialCluster, "initial-cluster", opts.InitialCluster, "All members of the new cluster, as name=url,name=url.")
	fs.StringVar(&opts.InitialClusterToken, "initial-cluster-token", opts.InitialClusterToken, "The name of the cluster, the same for all members.")
	fs.StringSliceVar(&opts.AdvertisePeerURLs, "initial-advertise-peer-urls", opts.AdvertisePeerURLs, "The addresses of this member in --initial-cluster.")
	fs.StringSliceVar(&opts.ListenPeerURLs, "listen-peer-urls", opts.ListenPeerURLs,
		"The addresses to listen on for the questions of other members that are new. Not needed by an only member.")
	fs.StringVar(&opts.PeerTLS.CertFile, "peer-cert-file", opts.PeerTLS.CertFile, "The certificate for other members, as client and as server.")
	fs.StringVar(&opts.PeerTLS.KeyFile, "peer-key-file", opts.PeerTLS.KeyFile, "The key of that certificate.")
	fs.StringVar(&opts.PeerTLS.TrustedCAFile, "peer-trusted-ca-file", opts.PeerTLS.TrustedCAFile, "The authority of the certificates of all members.")
	fs.Int64Var(&opts.RevisionFloor, "revision-floor", opts.RevisionFloor, "The revision at which the cluster is born. It must not be below --etcd-revision-floor of the server.")
}
