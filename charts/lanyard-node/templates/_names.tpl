{{- define "lanyard-node.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "lanyard-node.fullname" -}}
{{- $name := include "lanyard-node.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Names of cluster-scoped objects. They must differ between releases. */}}
{{- define "lanyard-node.clusterName" -}}
{{- $name := include "lanyard-node.fullname" . }}
{{- if hasPrefix .Release.Namespace $name }}{{ $name }}{{ else }}{{ printf "%s-%s" .Release.Namespace $name }}{{ end }}
{{- end }}

{{- define "lanyard-node.serviceAccountName" -}}
{{- default (include "lanyard-node.fullname" .) .Values.serviceAccount.name }}
{{- end }}

{{/* The selector labels of the DaemonSet. They are immutable. */}}
{{- define "lanyard-node.selector" -}}
app.kubernetes.io/name: {{ include "lanyard-node.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "lanyard-node.labels" -}}
{{ include "lanyard-node.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "lanyard-node.image" -}}
{{- $image := .Values.linux.image }}
{{- $repository := required "linux.image.repository is needed: the repository of the image lanyard-node" $image.repository }}
{{- if $image.digest }}
{{- printf "%s@%s" $repository $image.digest }}
{{- else }}
{{- printf "%s:%s" $repository (default .Chart.AppVersion $image.tag) }}
{{- end }}
{{- end }}

{{/* Whether the driver runs next to the upstream driver, under another name. */}}
{{- define "lanyard-node.coexists" -}}
{{- if ne .Values.driverName "secrets-store.csi.k8s.io" }}true{{ end }}
{{- end }}

{{/* Whether the plugin serves azure.sock. By default it does, unless another process must serve it. */}}
{{- define "lanyard-node.servesProvider" -}}
{{- $enabled := .Values.providerSocket.enabled }}
{{- if kindIs "invalid" $enabled }}
{{- if not (or (include "lanyard-node.coexists" .) (eq .Values.azureProvider "socket")) }}true{{ end }}
{{- else if $enabled }}true{{ end }}
{{- end }}

{{/*
The directory of the cloud environment files in the container. A directory of the node has the same path in
the container, so that classes use the path of the node.
*/}}
{{- define "lanyard-node.cloudEnvDir" -}}
{{- $environment := .Values.cloudEnvironment }}
{{- if and $environment.configMap $environment.directory }}
{{- fail "cloudEnvironment: give a configMap or a directory of the node, not both" }}
{{- end }}
{{- if $environment.configMap }}/etc/lanyard/cloud{{ else }}{{ trimSuffix "/" $environment.directory }}{{ end }}
{{- end }}

{{/*
The directory of the CSI socket. With the upstream driver name it is upstream's directory, so that the kubelet
finds the socket again.
*/}}
{{- define "lanyard-node.pluginDir" -}}
{{- $leaf := ternary .Values.driverName "csi-secrets-store" (eq (include "lanyard-node.coexists" .) "true") }}
{{- printf "%s/plugins/%s" (trimSuffix "/" .Values.linux.kubeletRootDir) $leaf }}
{{- end }}
