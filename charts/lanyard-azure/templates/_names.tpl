{{- define "lanyard-azure.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "lanyard-azure.fullname" -}}
{{- $name := include "lanyard-azure.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "lanyard-azure.serviceAccountName" -}}
{{- default (include "lanyard-azure.fullname" .) .Values.serviceAccount.name }}
{{- end }}

{{/* The selector labels of the Deployment and the Service. They are immutable. */}}
{{- define "lanyard-azure.selector" -}}
app.kubernetes.io/name: {{ include "lanyard-azure.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "lanyard-azure.labels" -}}
{{ include "lanyard-azure.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "lanyard-azure.image" -}}
{{- $image := .Values.image }}
{{- $repository := required "image.repository is needed: the repository of the image lanyard-azure" $image.repository }}
{{- if $image.digest }}
{{- printf "%s@%s" $repository $image.digest }}
{{- else }}
{{- printf "%s:%s" $repository (default .Chart.AppVersion $image.tag) }}
{{- end }}
{{- end }}

{{/* The ConfigMap with the certificate of the CA. */}}
{{- define "lanyard-azure.caConfigMap" -}}
{{- default (printf "%s-ca" (include "lanyard-azure.fullname" .)) .Values.caBundle.configMap }}
{{- end }}

{{/* The port of `listen`. */}}
{{- define "lanyard-azure.port" -}}
{{- splitList ":" .Values.listen | last }}
{{- end }}

{{- define "lanyard-azure.servicePort" -}}
{{- default (include "lanyard-azure.port" .) .Values.service.port }}
{{- end }}

{{/*
The loopback address of `listen`, or nothing for another address. The local Azure issues tokens to every
client that reaches it, so it never listens on other addresses of a node.
*/}}
{{- define "lanyard-azure.loopback" -}}
{{- $host := regexReplaceAll ":[0-9]+$" .Values.listen "" | trimPrefix "[" | trimSuffix "]" }}
{{- $loopback := or (hasPrefix "127." $host) (eq $host "::1") }}
{{- if and .Values.hostNetwork (not $loopback) }}
{{- fail (printf "listen: with hostNetwork=true every machine that reaches the node could obtain tokens at %s. Write a loopback address, such as 127.0.0.1:7750" .Values.listen) }}
{{- else if and $loopback (not .Values.hostNetwork) }}
{{- fail (printf "listen: other pods cannot reach %s. Write 0.0.0.0:PORT, or set hostNetwork=true" .Values.listen) }}
{{- end }}
{{- if $loopback }}{{ $host }}{{ end }}
{{- end }}

{{/* `<namespace>/<name>` of the HostedCluster: of the value, or of the program's example. */}}
{{- define "lanyard-azure.hostedCluster" -}}
{{- if .Values.hostedCluster }}
{{- $parsed := fromYaml .Values.hostedCluster }}
{{- $name := dig "metadata" "name" "" $parsed }}
{{- if or (ne (dig "kind" "" $parsed) "HostedCluster") (not $name) }}
{{- fail "hostedCluster: the value is not a single HostedCluster in YAML with metadata.name. Write --set-file hostedCluster=FILE" }}
{{- end }}
{{- printf "%s/%s" (dig "metadata" "namespace" "default" $parsed) $name }}
{{- else }}clusters/harbour{{ end }}
{{- end }}

{{/* The namespace of the control plane, as HyperShift computes it. */}}
{{- define "lanyard-azure.controlPlaneNamespace" -}}
{{- include "lanyard-azure.hostedCluster" . | replace "/" "-" | replace "." "-" }}
{{- end }}

{{/* The namespaces with a CA ConfigMap, as a JSON list. */}}
{{- define "lanyard-azure.caNamespaces" -}}
{{- $namespaces := list .Release.Namespace }}
{{- if .Values.controlPlaneNamespace.create }}
{{- $namespaces = append $namespaces (include "lanyard-azure.controlPlaneNamespace" .) }}
{{- end }}
{{- concat $namespaces .Values.caBundle.namespaces | uniq | toJson }}
{{- end }}
