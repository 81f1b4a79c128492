{{/*
Objects that every driver of this name shares belong to one manager at a time. What another one made
is never changed: the release stops before anything is written, and says whose it is.
Without a cluster (`helm template`, Argo CD) nothing is known and everything is rendered that
`csiDriver.enabled` and `linux.crds.enabled` do not leave out.
*/}}

{{/* Stops unless an object of the driver's name is ours or absent. */}}
{{- define "lanyard-node.guardDriver" -}}
{{- $driver := lookup "storage.k8s.io/v1" "CSIDriver" "" .Values.driverName }}
{{- if and $driver (not (include "lanyard.isOurs" (list . $driver))) }}
{{- fail (printf "the CSIDriver %s belongs to %s, and is left as it is. Run beside it with another driverName (such as node.lanyard.dev), or remove the other driver first; %s; to let its owner keep it, set csiDriver.enabled=false" .Values.driverName (include "lanyard.owner" $driver) (include "lanyard.adoption" .)) }}
{{- end }}
{{- end }}

{{/* Whether a CRD is to be written. Takes a list: the root context, the name of the CRD. */}}
{{- define "lanyard-node.writesCrd" -}}
{{- $root := index . 0 }}
{{- $name := index . 1 }}
{{- if $root.Values.linux.crds.enabled }}
{{- $crd := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" $name }}
{{- if or (not $crd) (include "lanyard.isOurs" (list $root $crd)) }}true
{{- else if not (include "lanyard-node.isBeside" $root) }}
{{- fail (printf "the CustomResourceDefinition %s belongs to %s, and is left as it is. To work with it, set linux.crds.enabled=false; %s" $name (include "lanyard.owner" $crd) (include "lanyard.adoption" $root)) }}
{{- end }}
{{- end }}
{{- end }}
