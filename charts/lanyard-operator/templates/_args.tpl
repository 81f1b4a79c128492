{{/* The command line of the operator. */}}
{{- define "lanyard-operator.args" -}}
- operator
- --role={{ .Values.role }}
- --templates=/etc/lanyard/workloads/workloads.yaml
- --shards={{ int .Values.shards }}
- --workers={{ int .Values.workers }}
- {{ printf "--metrics-addr=%s" .Values.metricsAddr | quote }}
{{- if .Values.logFormatJSON }}
- --log-format-json
{{- end }}
- -v={{ .Values.logVerbosity }}
{{- end }}
