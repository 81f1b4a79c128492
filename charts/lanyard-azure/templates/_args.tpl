{{/* The command line of the local Azure. */}}
{{- define "lanyard-azure.args" -}}
- azure
- serve
- {{ printf "--listen=%s" .Values.listen | quote }}
{{- if not (include "lanyard-azure.loopback" .) }}
- --allow-remote
{{- end }}
- --ca-cert=/etc/lanyard/ca/tls.crt
- --ca-key=/etc/lanyard/ca/tls.key
{{- if .Values.hostedCluster }}
- --file=/etc/lanyard/hosted-cluster/hostedcluster.yaml
{{- end }}
- --state=/var/lib/lanyard/azure
{{- end }}
