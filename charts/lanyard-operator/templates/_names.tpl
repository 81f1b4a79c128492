{{- define "lanyard-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "lanyard-operator.fullname" -}}
{{- $name := include "lanyard-operator.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Names of cluster-scoped objects. They must differ between releases. */}}
{{- define "lanyard-operator.clusterName" -}}
{{- $name := include "lanyard-operator.fullname" . }}
{{- if hasPrefix .Release.Namespace $name }}{{ $name }}{{ else }}{{ printf "%s-%s" .Release.Namespace $name }}{{ end }}
{{- end }}

{{- define "lanyard-operator.serviceAccountName" -}}
{{- default (include "lanyard-operator.fullname" .) .Values.serviceAccount.name }}
{{- end }}

{{/* The selector labels of the Deployment. They are immutable. */}}
{{- define "lanyard-operator.selector" -}}
app.kubernetes.io/name: {{ include "lanyard-operator.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "lanyard-operator.labels" -}}
{{ include "lanyard-operator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "lanyard-operator.image" -}}
{{- $image := .Values.image }}
{{- $repository := required "image.repository is needed: the repository of the image lanyard" $image.repository }}
{{- if $image.digest }}
{{- printf "%s@%s" $repository $image.digest }}
{{- else }}
{{- printf "%s:%s" $repository (default .Chart.AppVersion $image.tag) }}
{{- end }}
{{- end }}

{{/*
The host of the kubelet's probes, or nothing for the address of the pod. The kubelet probes from the node, so
another address works only if the pod uses the network of the node.
*/}}
{{- define "lanyard-operator.probeHost" -}}
{{- $host := splitList ":" .Values.metricsAddr | first }}
{{- if .Values.hostNetwork }}
{{- if ne $host "0.0.0.0" }}{{ $host }}{{ end }}
{{- else if or (eq $host "localhost") (hasPrefix "127." $host) }}
{{- fail (printf "metricsAddr: the kubelet cannot reach %s from outside of the pod. Write :PORT, or set hostNetwork=true" .Values.metricsAddr) }}
{{- end }}
{{- end }}
