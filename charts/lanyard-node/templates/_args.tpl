{{/* The command line of the node plugin. */}}
{{- define "lanyard-node.args" -}}
{{- $linux := .Values.linux }}
{{- $plugin := include "lanyard-node.pluginDir" . }}
{{- $kubelet := trimSuffix "/" $linux.kubeletRootDir -}}
- node
- {{ printf "--endpoint=unix://%s/csi.sock" $plugin | quote }}
- {{ printf "--drivername=%s" .Values.driverName | quote }}
- --nodeid=$(NODE_NAME)
- {{ printf "--kubelet-dir=%s" $kubelet | quote }}
- {{ printf "--registration-dir=%s/plugins_registry" $kubelet | quote }}
- {{ printf "--provider-volume=%s" $linux.providersDir | quote }}
{{- with $linux.additionalProvidersDirs }}
- {{ printf "--additional-provider-volume-paths=%s" (join "," .) | quote }}
{{- end }}
- --azure-provider={{ .Values.azureProvider }}
{{- if include "lanyard-node.servesProvider" . }}
- {{ printf "--provider-socket=%s/azure.sock" (trimSuffix "/" $linux.providersDir) | quote }}
{{- end }}
- {{ printf "--metrics-addr=%s" $linux.metricsAddr | quote }}
- --healthz-port={{ .Values.livenessProbe.port }}
- --volume-content-limit={{ .Values.volumeContentLimit }}
{{- with .Values.volumesMemoryLimit }}
- --volumes-memory-limit={{ . }}
{{- end }}
{{- if $linux.resources.limits | default dict | dig "memory" "" }}
- --container-memory-limit=$(CONTAINER_MEMORY_LIMIT)
{{- end }}
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
- --audit-file={{ ternary "/var/log/lanyard/audit.jsonl" "-" (not (empty .Values.audit.directory)) }}
{{- with .Values.staleCache }}
{{- if and .directory .keySecret }}
- --stale-cache-dir=/var/lib/lanyard/stale-cache
- {{ printf "--stale-cache-key-file=/etc/lanyard/stale-cache-key/%s" .key | quote }}
{{- end }}
{{- end }}
{{- if .Values.compatibility.podOverridesParameters }}
- --pod-overrides-parameters
{{- end }}
- --construct-pem-chain={{ .Values.constructPEMChain }}
- --write-cert-and-key-in-separate-files={{ .Values.writeCertAndKeyInSeparateFiles }}
{{- with .Values.cloudName }}
- {{ printf "--cloud-name=%s" . | quote }}
{{- end }}
{{- if include "lanyard-node.cloudEnvDir" . }}
- {{ printf "--cloud-env-dir=%s" (include "lanyard-node.cloudEnvDir" .) | quote }}
{{- end }}
- --vault-requests-per-second={{ int64 .Values.vaultRequestsPerSecond }}
- --vault-request-burst={{ int64 .Values.vaultRequestBurst }}
{{- with .Values.tokenProxyURL }}
- {{ printf "--token-proxy-url=%s" . | quote }}
{{- end }}
{{- with .Values.sniName }}
- {{ printf "--sni-name=%s" . | quote }}
{{- end }}
{{- with .Values.customUserAgent }}
- {{ printf "--custom-user-agent=%s" . | quote }}
{{- end }}
{{- if .Values.logFormatJSON }}
- --log-format-json
{{- end }}
- -v={{ .Values.logVerbosity }}
{{- end }}
