{{/*
The CSIDriver object and the CRDs have one manager at a time. The chart never changes the objects of another
manager: the installation fails before it writes an object, and names the owner. Without a cluster
(`helm template`, Argo CD) the owner is unknown, and only `csiDriver.enabled` and `linux.crds.enabled` decide
what is rendered.
*/}}

{{/* Fails if another owner has a CSIDriver object with the driver's name. */}}
{{- define "lanyard-node.guardDriver" -}}
{{- $driver := lookup "storage.k8s.io/v1" "CSIDriver" "" .Values.driverName }}
{{- if and $driver (not (include "lanyard.isOwnedByRelease" (list . $driver))) }}
{{- fail (printf "the CSIDriver %s belongs to %s, so the chart does not change it. Run next to it with another driverName (such as node.lanyard.dev), or remove the other driver first; %s; to let its owner keep it, set csiDriver.enabled=false" .Values.driverName (include "lanyard.owner" $driver) (include "lanyard.adoption" .)) }}
{{- end }}
{{- end }}

{{/* Whether to render a CRD. Takes a list: the root context, the name of the CRD. */}}
{{- define "lanyard-node.writesCrd" -}}
{{- $root := index . 0 }}
{{- $name := index . 1 }}
{{- if $root.Values.linux.crds.enabled }}
{{- $crd := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" $name }}
{{- if or (not $crd) (include "lanyard.isOwnedByRelease" (list $root $crd)) }}true
{{- else if not (include "lanyard-node.coexists" $root) }}
{{- fail (printf "the CustomResourceDefinition %s belongs to %s, so the chart does not change it. To use it as it is, set linux.crds.enabled=false; %s" $name (include "lanyard.owner" $crd) (include "lanyard.adoption" $root)) }}
{{- end }}
{{- end }}
{{- end }}
