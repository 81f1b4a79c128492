{{/* The command line of the operator. */}}
{{- define "lanyard-operator.args" -}}
- operator
- --role={{ .Values.role }}
{{- if and .Values.rbac.install (eq .Values.role "all") }}
- {{ printf "--service-account=%s/%s" .Release.Namespace (include "lanyard-operator.serviceAccountName" .) | quote }}
{{- end }}
- --templates=/etc/lanyard/workloads/workloads.yaml
- --shards={{ int .Values.shards }}
- {{ printf "--lease-name=%s" (include "lanyard-operator.fullname" .) | quote }}
- --workers={{ int .Values.workers }}
- --rotation={{ .Values.rotation }}
- --rotation-poll-interval={{ .Values.rotationPollInterval }}
{{- if .Values.secretsStoreDriver }}
- --secrets-store-driver
{{- end }}
- --renewal-grace-period={{ .Values.renewalGracePeriod }}
- {{ printf "--metrics-addr=%s" .Values.metricsAddr | quote }}
{{- if .Values.logFormatJSON }}
- --log-format-json
{{- end }}
- -v={{ .Values.logVerbosity }}
{{- end }}
