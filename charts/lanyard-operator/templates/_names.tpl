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

{{/* Names of objects that have no namespace: two releases must not meet. */}}
{{- define "lanyard-operator.clusterName" -}}
{{- $name := include "lanyard-operator.fullname" . }}
{{- if hasPrefix .Release.Namespace $name }}{{ $name }}{{ else }}{{ printf "%s-%s" .Release.Namespace $name }}{{ end }}
{{- end }}

{{- define "lanyard-operator.serviceAccountName" -}}
{{- default (include "lanyard-operator.fullname" .) .Values.serviceAccount.name }}
{{- end }}

{{/* What the Deployment selects by; it can never change. */}}
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
{{- $repository := required "image.repository is needed: where the image of lanyard was pushed to" $image.repository }}
{{- if $image.digest }}
{{- printf "%s@%s" $repository $image.digest }}
{{- else }}
{{- printf "%s:%s" $repository (default .Chart.AppVersion $image.tag) }}
{{- end }}
{{- end }}

{{/*
Where the kubelet asks for health. It asks from the node: at the address of the pod by itself, and at
another one only where the pod is in the node's network.
*/}}
{{- define "lanyard-operator.probeHost" -}}
{{- $host := splitList ":" .Values.metricsAddr | first }}
{{- if .Values.hostNetwork }}
{{- if ne $host "0.0.0.0" }}{{ $host }}{{ end }}
{{- else if or (eq $host "localhost") (hasPrefix "127." $host) }}
{{- fail (printf "metricsAddr: the kubelet cannot reach %s from outside of the pod. Write :PORT, or set hostNetwork=true" .Values.metricsAddr) }}
{{- end }}
{{- end }}
