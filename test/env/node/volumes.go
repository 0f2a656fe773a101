// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// volumeDir has the volumes of a pod inside its root directory. A mount is a
// relative symbolic link to there: it leads to the same place inside and outside.
const volumeDir = ".volumes"

// volume is one mounted volume.
type volume struct {
	spec corev1.Volume
	// dir is its folder on this machine.
	dir string
	// claim is where the data goes back at the end of the pod.
	claim *claim
	// written is what an atomic volume holds.
	written *payload
	token   *token
}

// mountVolumes makes the folders of all volumes and the mounts of all containers, once.
func (p *pod) mountVolumes(live *corev1.Pod) error {
	for i := range live.Spec.Volumes {
		spec := &live.Spec.Volumes[i]
		if p.volumes[spec.Name] != nil {
			continue
		}
		v := &volume{spec: *spec.DeepCopy(), dir: filepath.Join(p.root, volumeDir, spec.Name)}
		if err := p.makeVolume(live, v); err != nil {
			return fmt.Errorf("volume %s: %w", spec.Name, err)
		}
		p.volumes[spec.Name] = v
	}
	for _, c := range slices.Concat(p.inits, p.mains) {
		if err := p.mount(c.spec); err != nil {
			return fmt.Errorf("container %s: %w", c.spec.Name, err)
		}
	}
	return nil
}

func (p *pod) makeVolume(live *corev1.Pod, v *volume) error {
	switch {
	case v.spec.EmptyDir != nil:
		if err := os.MkdirAll(v.dir, 0o777); err != nil {
			return err
		}
		return giveTree(v.dir, fsGroup(live), 0o777)
	case v.spec.PersistentVolumeClaim != nil:
		return p.mountClaim(live, v)
	case v.spec.Secret != nil, v.spec.ConfigMap != nil, v.spec.Projected != nil, v.spec.DownwardAPI != nil:
		return os.MkdirAll(v.dir, 0o755)
	default:
		return errors.New("its kind is unknown to this node")
	}
}

// mount links the mount paths of one container to the volumes, outer paths first.
func (p *pod) mount(spec *corev1.Container) error {
	root, err := os.OpenRoot(p.root)
	if err != nil {
		return fmt.Errorf("opening the root directory of a pod: %w", err)
	}
	defer root.Close() //nolint:errcheck // nothing is buffered
	mounts := slices.Clone(spec.VolumeMounts)
	slices.SortFunc(mounts, func(a, b corev1.VolumeMount) int { return strings.Compare(a.MountPath, b.MountPath) })
	for _, mount := range mounts {
		if mount.SubPathExpr != "" {
			return errors.New("subPathExpr is unknown to this node")
		}
		at := strings.TrimPrefix(path.Clean(mount.MountPath), "/")
		if err := root.MkdirAll(path.Dir(at), 0o755); err != nil {
			return fmt.Errorf("mounting at %s: %w", mount.MountPath, err)
		}
		target := strings.Repeat("../", strings.Count(at, "/")) + path.Join(volumeDir, mount.Name, mount.SubPath)
		if existing, err := root.Readlink(at); err == nil && existing == target {
			continue
		}
		if err := root.Symlink(target, at); err != nil {
			return fmt.Errorf("mounting at %s, where another container of the pod may have another volume: %w", mount.MountPath, err)
		}
	}
	return nil
}

// writeVolumes makes all volumes equal to their sources. It is called by one
// goroutine at a time.
func (p *pod) writeVolumes(ctx context.Context, live *corev1.Pod) error {
	for _, v := range p.volumes {
		if v.spec.EmptyDir != nil || v.claim != nil {
			continue
		}
		content, err := p.content(ctx, live, v)
		if err != nil {
			return fmt.Errorf("volume %s: %w", v.spec.Name, err)
		}
		if err := v.write(content, fsGroup(live)); err != nil {
			return fmt.Errorf("writing the volume %s: %w", v.spec.Name, err)
		}
	}
	return nil
}

// content collects the files of a volume.
func (p *pod) content(ctx context.Context, live *corev1.Pod, v *volume) (*payload, error) {
	files := newPayload()
	switch {
	case v.spec.Secret != nil:
		source := v.spec.Secret
		data, err := p.node.secret(live.Namespace, source.SecretName, source.Optional)
		if err != nil {
			return nil, err
		}
		return files, files.add(data, source.Items, source.DefaultMode, source.Optional)
	case v.spec.ConfigMap != nil:
		source := v.spec.ConfigMap
		data, err := p.node.configMap(live.Namespace, source.Name, source.Optional)
		if err != nil {
			return nil, err
		}
		return files, files.add(data, source.Items, source.DefaultMode, source.Optional)
	case v.spec.DownwardAPI != nil:
		return files, p.addFields(live, files, v.spec.DownwardAPI.Items, v.spec.DownwardAPI.DefaultMode)
	default:
		for i := range v.spec.Projected.Sources {
			if err := p.addProjection(ctx, live, v, &v.spec.Projected.Sources[i], files); err != nil {
				return nil, err
			}
		}
		return files, nil
	}
}

func (p *pod) addProjection(ctx context.Context, live *corev1.Pod, v *volume, source *corev1.VolumeProjection, files *payload) error {
	mode := v.spec.Projected.DefaultMode
	switch {
	case source.Secret != nil:
		data, err := p.node.secret(live.Namespace, source.Secret.Name, source.Secret.Optional)
		if err != nil {
			return err
		}
		return files.add(data, source.Secret.Items, mode, source.Secret.Optional)
	case source.ConfigMap != nil:
		data, err := p.node.configMap(live.Namespace, source.ConfigMap.Name, source.ConfigMap.Optional)
		if err != nil {
			return err
		}
		return files.add(data, source.ConfigMap.Items, mode, source.ConfigMap.Optional)
	case source.DownwardAPI != nil:
		return p.addFields(live, files, source.DownwardAPI.Items, mode)
	case source.ServiceAccountToken != nil:
		value, err := p.serviceAccountToken(ctx, live, v, source.ServiceAccountToken)
		if err != nil {
			return err
		}
		file := payloadFile{data: value, mode: 0o600}
		if owner, ok := commonUser(live); ok {
			file.owner = owner
		} else if fsGroup(live) == nil {
			file.mode = 0o644
		}
		files.files[source.ServiceAccountToken.Path] = file
		return nil
	default:
		return errors.New("the projected source is unknown to this node")
	}
}

func (p *pod) addFields(live *corev1.Pod, files *payload, items []corev1.DownwardAPIVolumeFile, mode *int32) error {
	for i := range items {
		item := &items[i]
		var value string
		var err error
		if item.FieldRef != nil {
			value, err = p.field(live, item.FieldRef.FieldPath)
		} else {
			value, err = p.resource(live, nil, item.ResourceFieldRef)
		}
		if err != nil {
			return err
		}
		files.files[item.Path] = payloadFile{data: []byte(value), mode: fileMode(item.Mode, mode)}
	}
	return nil
}

// secret returns the data of a Secret; nil for one that is optional and missing.
func (n *Node) secret(namespace, name string, optional *bool) (map[string][]byte, error) {
	secret, err := n.secretLister.Secrets(namespace).Get(name)
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return secret.Data, nil
}

// configMap returns the data of a ConfigMap; nil for one that is optional and missing.
func (n *Node) configMap(namespace, name string, optional *bool) (map[string][]byte, error) {
	configMap, err := n.configMapLister.ConfigMaps(namespace).Get(name)
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	data := map[string][]byte{}
	for key, value := range configMap.Data {
		data[key] = []byte(value)
	}
	maps.Copy(data, configMap.BinaryData)
	return data, nil
}

// fsGroup is the group that volumes belong to, if any.
func fsGroup(live *corev1.Pod) *int64 {
	if live.Spec.SecurityContext == nil {
		return nil
	}
	return live.Spec.SecurityContext.FSGroup
}

// commonUser is the user of all containers if they have the same explicit one.
func commonUser(live *corev1.Pod) (int, bool) {
	var common *int64
	for _, c := range slices.Concat(live.Spec.InitContainers, live.Spec.Containers) {
		var uid *int64
		if live.Spec.SecurityContext != nil {
			uid = live.Spec.SecurityContext.RunAsUser
		}
		if c.SecurityContext != nil && c.SecurityContext.RunAsUser != nil {
			uid = c.SecurityContext.RunAsUser
		}
		if uid == nil || (common != nil && *common != *uid) {
			return 0, false
		}
		common = uid
	}
	return int(*common), common != nil
}
