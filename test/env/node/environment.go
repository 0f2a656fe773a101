// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// imageUser is who runs in a container whose manifest names nobody.
const imageUser = 65532

// containerUser returns who a container runs as.
func containerUser(live *corev1.Pod, spec *corev1.Container) (user, error) {
	of, own := live.Spec.SecurityContext, spec.SecurityContext
	if of == nil {
		of = &corev1.PodSecurityContext{}
	}
	if own == nil {
		own = &corev1.SecurityContext{}
	}
	who := user{
		uid: number(imageUser, of.RunAsUser, own.RunAsUser),
		gid: number(imageUser, of.RunAsGroup, own.RunAsGroup),
	}
	nonRoot := own.RunAsNonRoot
	if nonRoot == nil {
		nonRoot = of.RunAsNonRoot
	}
	if who.uid == 0 && nonRoot != nil && *nonRoot {
		return who, errors.New("container has runAsNonRoot and will run as root")
	}
	for _, group := range of.SupplementalGroups {
		who.groups = append(who.groups, uint32(group))
	}
	if of.FSGroup != nil {
		who.groups = append(who.groups, uint32(*of.FSGroup))
	}
	return who, nil
}

// number returns the last value that is set.
func number(fallback uint32, values ...*int64) uint32 {
	for _, value := range slices.Backward(values) {
		if value != nil {
			return uint32(*value)
		}
	}
	return fallback
}

// environment returns the variables of the manifest, and those of the cluster
// that the manifest may refer to.
func (c *container) environment(live *corev1.Pod) (map[string]string, error) {
	variables, err := c.pod.node.kubernetesVariables()
	if err != nil {
		return nil, err
	}
	for i := range c.spec.EnvFrom {
		if err := c.pod.node.addSource(live.Namespace, &c.spec.EnvFrom[i], variables); err != nil {
			return nil, err
		}
	}
	for i := range c.spec.Env {
		variable := &c.spec.Env[i]
		if variable.ValueFrom == nil {
			variables[variable.Name] = expand(variable.Value, variables)
			continue
		}
		value, found, err := c.valueFrom(live, variable.ValueFrom)
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", variable.Name, err)
		}
		if found {
			variables[variable.Name] = value
		}
	}
	return variables, nil
}

// processEnvironment adds what a container engine sets.
func (c *container) processEnvironment(live *corev1.Pod, variables map[string]string) []string {
	all := map[string]string{"PATH": searchPath, "HOME": "/", "HOSTNAME": hostname(live)}
	maps.Copy(all, variables)
	lines := make([]string, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		lines = append(lines, name+"="+all[name])
	}
	return lines
}

// kubernetesVariables lead a program in a pod to kube-apiserver.
func (n *Node) kubernetesVariables() (map[string]string, error) {
	service, err := n.serviceLister.Services(corev1.NamespaceDefault).Get("kubernetes")
	if err != nil {
		return nil, fmt.Errorf("reading the Service of kube-apiserver: %w", err)
	}
	host, port := service.Spec.ClusterIP, strconv.Itoa(int(service.Spec.Ports[0].Port))
	return map[string]string{
		"KUBERNETES_SERVICE_HOST":       host,
		"KUBERNETES_SERVICE_PORT":       port,
		"KUBERNETES_SERVICE_PORT_HTTPS": port,
		"KUBERNETES_PORT":               "tcp://" + net.JoinHostPort(host, port),
	}, nil
}

func (n *Node) addSource(namespace string, source *corev1.EnvFromSource, variables map[string]string) error {
	values := map[string]string{}
	switch {
	case source.ConfigMapRef != nil:
		data, err := n.configMap(namespace, source.ConfigMapRef.Name, source.ConfigMapRef.Optional)
		if err != nil {
			return err
		}
		for key, value := range data {
			values[key] = string(value)
		}
	case source.SecretRef != nil:
		data, err := n.secret(namespace, source.SecretRef.Name, source.SecretRef.Optional)
		if err != nil {
			return err
		}
		for key, value := range data {
			values[key] = string(value)
		}
	default:
		return errors.New("envFrom has an unknown source")
	}
	for key, value := range values {
		variables[source.Prefix+key] = value
	}
	return nil
}

func (c *container) valueFrom(live *corev1.Pod, source *corev1.EnvVarSource) (value string, found bool, err error) {
	switch {
	case source.FieldRef != nil:
		value, err := c.pod.field(live, source.FieldRef.FieldPath)
		return value, true, err
	case source.ResourceFieldRef != nil:
		value, err := c.pod.resource(live, c.spec, source.ResourceFieldRef)
		return value, true, err
	case source.SecretKeyRef != nil:
		ref := source.SecretKeyRef
		data, err := c.pod.node.secret(live.Namespace, ref.Name, ref.Optional)
		return keyOf(data, ref.Key, ref.Optional, err)
	case source.ConfigMapKeyRef != nil:
		ref := source.ConfigMapKeyRef
		data, err := c.pod.node.configMap(live.Namespace, ref.Name, ref.Optional)
		return keyOf(data, ref.Key, ref.Optional, err)
	default:
		return "", false, errors.New("its source is unknown")
	}
}

func keyOf(data map[string][]byte, key string, optional *bool, err error) (string, bool, error) {
	if err != nil {
		return "", false, err
	}
	value, found := data[key]
	if !found && (optional == nil || !*optional) {
		return "", false, fmt.Errorf("key %s is missing", key)
	}
	return string(value), found, nil
}

// field returns what a fieldRef points at.
func (p *pod) field(live *corev1.Pod, path string) (string, error) {
	if name, key, ok := strings.Cut(strings.TrimSuffix(path, "']"), "['"); ok {
		switch name {
		case "metadata.labels":
			return live.Labels[key], nil
		case "metadata.annotations":
			return live.Annotations[key], nil
		}
	}
	switch path {
	case "metadata.name":
		return live.Name, nil
	case "metadata.namespace":
		return live.Namespace, nil
	case "metadata.uid":
		return string(live.UID), nil
	case "metadata.labels":
		return keyValues(live.Labels), nil
	case "metadata.annotations":
		return keyValues(live.Annotations), nil
	case "spec.nodeName":
		return nodeName, nil
	case "spec.serviceAccountName":
		return live.Spec.ServiceAccountName, nil
	case "status.podIP", "status.podIPs":
		return p.ip, nil
	case "status.hostIP", "status.hostIPs":
		return nodeIP, nil
	}
	return "", fmt.Errorf("field %s is unknown to this node", path)
}

func keyValues(values map[string]string) string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		lines = append(lines, fmt.Sprintf("%s=%q", key, values[key]))
	}
	return strings.Join(lines, "\n")
}

// resource returns a limit or request in units of the divisor, rounded up.
func (p *pod) resource(live *corev1.Pod, spec *corev1.Container, ref *corev1.ResourceFieldSelector) (string, error) {
	if ref.ContainerName != "" {
		for i := range live.Spec.Containers {
			if live.Spec.Containers[i].Name == ref.ContainerName {
				spec = &live.Spec.Containers[i]
			}
		}
	}
	if spec == nil {
		return "", fmt.Errorf("resource %s names no container", ref.Resource)
	}
	kind, name, _ := strings.Cut(ref.Resource, ".")
	list := spec.Resources.Requests
	if kind == "limits" {
		list = spec.Resources.Limits
	}
	amount, found := list[corev1.ResourceName(name)]
	if !found && kind == "limits" {
		// Without a limit it is what the node has.
		amount, found = resource.MustParse("64"), name != string(corev1.ResourceMemory)
		if !found {
			amount = resource.MustParse("256Gi")
		}
	}
	divisor := ref.Divisor.AsApproximateFloat64()
	if divisor == 0 {
		divisor = 1
	}
	units := amount.AsApproximateFloat64() / divisor
	whole := int64(units)
	if float64(whole) < units {
		whole++
	}
	return strconv.FormatInt(whole, 10), nil
}

// expand replaces $(NAME) by the variable; $$ stands for $, and a reference to
// an unknown variable stays as it is.
// Reference: https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/
func expand(text string, variables map[string]string) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "$")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		name, after, reference := strings.Cut(strings.TrimPrefix(rest, "("), ")")
		value, known := variables[name]
		switch {
		case strings.HasPrefix(rest, "$"):
			out.WriteByte('$')
			text = rest[1:]
		case strings.HasPrefix(rest, "(") && reference && known:
			out.WriteString(value)
			text = after
		default:
			out.WriteByte('$')
			text = rest
		}
	}
}

// hostname is the name that a pod gives itself.
func hostname(live *corev1.Pod) string {
	if live.Spec.Hostname != "" {
		return live.Spec.Hostname
	}
	return live.Name
}
