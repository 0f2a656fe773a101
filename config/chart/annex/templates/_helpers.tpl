{{/* Labels of every object. */}}
{{- define "annex.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: annex
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Labels by which the pods of a component are found. They never change. Takes (dict "root" $ "component" NAME). */}}
{{- define "annex.selector" -}}
app.kubernetes.io/name: annex
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Labels of an object of a component. */}}
{{- define "annex.componentLabels" -}}
{{ include "annex.labels" .root }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Labels of a pod: those of its object, and those of the values. Takes also "values". */}}
{{- define "annex.podLabels" -}}
{{ include "annex.componentLabels" . }}
{{- with .values.podLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The image of annex. */}}
{{- define "annex.image" -}}
{{- include "annex.imageName" (dict "image" .Values.image "tag" .Chart.AppVersion) }}
{{- end }}

{{/* An image by digest, else by tag. */}}
{{- define "annex.imageName" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .tag }}
{{- end }}
{{- end }}

{{/* The pod's own address in host:port and in URLs. */}}
{{- define "annex.podHost" -}}
{{- if eq .Values.ipFamily "IPv6" }}[$(POD_IP)]{{ else }}$(POD_IP){{ end }}
{{- end }}

{{/* What a pod knows of itself. Flags refer to it as $(POD_IP). */}}
{{- define "annex.podEnv" -}}
- name: POD_IP
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
{{- end }}

{{/* GOMEMLIMIT, nine tenths of the memory limit, so that Go collects garbage before the kernel kills. Nothing without a limit. Takes resources. */}}
{{- define "annex.memoryEnv" -}}
{{- $limit := dig "limits" "memory" "" . | toString }}
{{- if $limit }}
- name: GOMEMLIMIT
  value: {{ include "annex.nineTenths" $limit | quote }}
{{- end }}
{{- end }}

{{/* Nine tenths of a quantity of memory, in bytes. */}}
{{- define "annex.nineTenths" -}}
{{- $factors := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 }}
{{- $unit := regexFind "[A-Za-z]*$" . }}
{{- if not (hasKey $factors $unit) }}
{{- fail (printf "memory limit %s has the unit %s: write a number with Ki, Mi, Gi, Ti, k, M, G, T or none" . $unit) }}
{{- end }}
{{- mulf (trimSuffix $unit . | float64) (get $factors $unit) 0.9 | floor | int64 }}
{{- end }}

{{/* What every pod is. */}}
{{- define "annex.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* What every container is. */}}
{{- define "annex.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop:
    - ALL
{{- end }}

{{/* Where pods of a component go. Takes root, component, values, and zoneOnly for components that have one pod a node anyway. */}}
{{- define "annex.scheduling" -}}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.priorityClass.name }}
priorityClassName: {{ . }}
{{- end }}
affinity:
  podAntiAffinity:
    {{- if eq .values.antiAffinity "required" }}
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        {{- if ne .component "etcd" }}
        # Pods of an upgrade may stand beside those that they replace, where there are no more nodes than replicas.
        matchLabelKeys: [pod-template-hash]
        {{- end }}
        labelSelector:
          matchLabels:
            {{- include "annex.selector" . | nindent 12 }}
    {{- else }}
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "annex.selector" . | nindent 14 }}
    {{- end }}
topologySpreadConstraints:
  {{- if .values.topologySpreadConstraints }}
  {{- toYaml .values.topologySpreadConstraints | nindent 2 }}
  {{- else }}
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "annex.selector" . | nindent 8 }}
  {{- if not .zoneOnly }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "annex.selector" . | nindent 8 }}
  {{- end }}
  {{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* A PodDisruptionBudget. maxUnavailable lets a single replica go too: a drain must not hang for ever. */}}
{{- define "annex.podDisruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: annex-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "annex.componentLabels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  # A pod that is not ready serves nobody; keeping it would only stop the drain of its node.
  unhealthyPodEvictionPolicy: {{ .unhealthy }}
  selector:
    matchLabels:
      {{- include "annex.selector" . | nindent 6 }}
{{- end }}

{{/* The ServiceAccount of a component. */}}
{{- define "annex.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: annex-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "annex.componentLabels" . | nindent 4 }}
  {{- with .annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
# Pods that need the token say so themselves.
automountServiceAccountToken: false
{{- end }}

{{/* A ServiceAccount of this release as the subject of a binding. */}}
{{- define "annex.subject" -}}
- kind: ServiceAccount
  namespace: {{ .root.Release.Namespace }}
  name: annex-{{ .component }}
{{- end }}

{{/* Whether Secrets are made in the namespace by the names of the chart. */}}
{{- define "annex.secretName" -}}
{{- if eq .root.Values.certificates.mode "existing" }}{{ get .root.Values.certificates.existing .key }}{{ else }}{{ .name }}{{ end }}
{{- end }}
{{- define "annex.apiserverSecret" -}}
{{- include "annex.secretName" (dict "root" . "key" "apiserverSecretName" "name" "annex-apiserver-tls") }}
{{- end }}
{{- define "annex.controllerSecret" -}}
{{- include "annex.secretName" (dict "root" . "key" "controllerSecretName" "name" "annex-controller-tls") }}
{{- end }}
{{- define "annex.etcdServerSecret" -}}
{{- include "annex.secretName" (dict "root" . "key" "etcdServerSecretName" "name" "annex-etcd-server-tls") }}
{{- end }}
{{- define "annex.etcdPeerSecret" -}}
{{- include "annex.secretName" (dict "root" . "key" "etcdPeerSecretName" "name" "annex-etcd-peer-tls") }}
{{- end }}
{{- define "annex.etcdClientSecret" -}}
{{- if eq .Values.etcd.mode "external" -}}
{{ .Values.etcd.external.secretName }}
{{- else -}}
{{- include "annex.secretName" (dict "root" . "key" "etcdClientSecretName" "name" "annex-etcd-client-tls") }}
{{- end }}
{{- end }}

{{/* The members of etcd: their number, their DNS names as a JSON array, their URLs for each other and for clients. */}}
{{- define "annex.etcdMembers" -}}3{{- end }}
{{- define "annex.etcdNames" -}}
{{- $names := list }}
{{- range $i := until (include "annex.etcdMembers" . | int) }}
{{- $names = append $names (printf "annex-etcd-%d.annex-etcd.%s.svc" $i $.Release.Namespace) }}
{{- end }}
{{- toJson $names }}
{{- end }}
{{- define "annex.etcdInitialCluster" -}}
{{- $members := list }}
{{- range include "annex.etcdNames" . | fromJsonArray }}
{{- $members = append $members (printf "%s=https://%s:2380" (splitList "." . | first) .) }}
{{- end }}
{{- join "," $members }}
{{- end }}
{{- define "annex.etcdServers" -}}
{{- if eq .Values.etcd.mode "external" -}}
{{ join "," .Values.etcd.external.endpoints }}
{{- else -}}
{{- $urls := list }}
{{- range include "annex.etcdNames" . | fromJsonArray }}
{{- $urls = append $urls (printf "https://%s:2379" .) }}
{{- end }}
{{- join "," $urls }}
{{- end }}
{{- end }}

{{/* How many replicas of annex-apiserver there are. */}}
{{- define "annex.apiserverReplicas" -}}
{{- if eq .Values.etcd.mode "embedded" }}1{{ else }}{{ .Values.apiserver.replicas }}{{ end }}
{{- end }}

{{/* Whether etcd runs here. */}}
{{- define "annex.hasEtcd" -}}
{{- if eq .Values.etcd.mode "statefulset" }}true{{ end }}
{{- end }}
