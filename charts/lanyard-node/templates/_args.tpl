{{/* The command line of the node plugin. */}}
{{- define "lanyard-node.args" -}}
{{- $linux := .Values.linux }}
{{- $plugin := include "lanyard-node.pluginDir" . }}
{{- $kubelet := trimSuffix "/" $linux.kubeletRootDir -}}
- node
- --endpoint=unix://{{ $plugin }}/csi.sock
- --drivername={{ .Values.driverName }}
- --nodeid=$(NODE_NAME)
- --kubelet-dir={{ $kubelet }}
- --registration-dir={{ $kubelet }}/plugins_registry
- --provider-volume={{ $linux.providersDir }}
- --additional-provider-volume-paths={{ join "," $linux.additionalProvidersDirs }}
{{- if include "lanyard-node.servesProvider" . }}
- --provider-socket={{ trimSuffix "/" $linux.providersDir }}/azure.sock
{{- end }}
- --metrics-addr={{ $linux.metricsAddr }}
- --healthz-port={{ .Values.livenessProbe.port }}
- --enable-secret-rotation={{ .Values.enableSecretRotation }}
- --rotation-poll-interval={{ .Values.rotationPollInterval }}
- --max-call-recv-msg-size={{ int64 .Values.maxCallRecvMsgSize }}
{{- if .Values.providerHealthCheck }}
- --provider-health-check
- --provider-health-check-interval={{ .Values.providerHealthCheckInterval }}
{{- end }}
{{- if .Values.syncSecret.enabled }}
- --sync-secrets
{{- end }}
- --policy-mode={{ .Values.policy.mode }}
{{- if .Values.policy.document }}
- --policy-file=/etc/lanyard/policy/policy.yaml
{{- end }}
{{- with .Values.staleCache }}
{{- if .directory }}
- --stale-cache-dir=/var/lib/lanyard/stale-cache
{{- end }}
{{- if .keySecret }}
- --stale-cache-key-file=/etc/lanyard/stale-cache-key/{{ .key }}
{{- end }}
{{- end }}
{{- if .Values.compatibility.podOverridesParameters }}
- --pod-overrides-parameters
{{- end }}
- --construct-pem-chain={{ .Values.constructPEMChain }}
- --write-cert-and-key-in-separate-files={{ .Values.writeCertAndKeyInSeparateFiles }}
{{- with .Values.cloudName }}
- --cloud-name={{ . }}
{{- end }}
{{- with .Values.tokenProxyURL }}
- --token-proxy-url={{ . }}
{{- end }}
{{- with .Values.sniName }}
- --sni-name={{ . }}
{{- end }}
{{- with .Values.customUserAgent }}
- --custom-user-agent={{ . | quote }}
{{- end }}
{{- if .Values.logFormatJSON }}
- --log-format-json
{{- end }}
- -v={{ .Values.logVerbosity }}
{{- end }}
