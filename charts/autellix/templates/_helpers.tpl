{{/* Name of the operator's objects: short enough for any suffix of Kubernetes. */}}
{{- define "autellix.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains "autellix" .Release.Name -}}
{{- printf "%s-operator" (.Release.Name | trunc 43 | trimSuffix "-") -}}
{{- else -}}
{{- printf "%s-autellix-operator" (.Release.Name | trunc 34 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{/* Cluster-wide names hold the namespace, so that releases of one name in two namespaces do not meet. */}}
{{- define "autellix.globalName" -}}
{{- printf "autellix:%s:%s" .Release.Namespace (include "autellix.fullname" .) -}}
{{- end -}}

{{- define "autellix.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "autellix.fullname" .) -}}
{{- else -}}
{{- required "serviceAccount.name: must be given when serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Where a cluster can be made so that this operator serves it: the release's namespace, if that is one of them. */}}
{{- define "autellix.clusterNamespace" -}}
{{- if or (not .Values.watchNamespaces) (has .Release.Namespace .Values.watchNamespaces) -}}
{{- .Release.Namespace -}}
{{- else -}}
{{- first .Values.watchNamespaces -}}
{{- end -}}
{{- end -}}

{{/* Port of the Service of the cluster of this release. */}}
{{- define "autellix.clusterPort" -}}
{{- dig "controller" "service" "port" 80 .Values.cluster.spec | int64 -}}
{{- end -}}

{{/* The cluster that "helm test" asks; empty: none. */}}
{{- define "autellix.testEndpoint" -}}
{{- if .Values.test.endpoint -}}
{{- .Values.test.endpoint -}}
{{- else if .Values.cluster.enabled -}}
{{- printf "http://%s.%s.svc:%s/v1" .Values.cluster.name (include "autellix.clusterNamespace" .) (include "autellix.clusterPort" .) -}}
{{- end -}}
{{- end -}}

{{/* Never changes: the selector of a Deployment is immutable. */}}
{{- define "autellix.selectorLabels" -}}
app.kubernetes.io/name: autellix-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "autellix.labels" -}}
{{ include "autellix.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: autellix
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* An image reference from registry, repository, tag and digest. Takes a list: the image, the default tag. */}}
{{- define "autellix.image" -}}
{{- $image := index . 0 -}}
{{- with $image.registry }}{{ . }}/{{ end -}}
{{- $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default (index . 1) }}{{ end -}}
{{- end -}}

{{/* What the operator has to do in each namespace it serves, and no more. */}}
{{- define "autellix.rules" -}}
# Clusters: read the spec, write the status. "finalizers" allows to block a cluster's end until its children are gone.
- apiGroups: [autellix.dev]
  resources: [autellixclusters]
  verbs: [get, list, watch]
- apiGroups: [autellix.dev]
  resources: [autellixclusters/status]
  verbs: [patch]
- apiGroups: [autellix.dev]
  resources: [autellixclusters/finalizers]
  verbs: [update]
# Children.
- apiGroups: [""]
  resources: [secrets, serviceaccounts, services]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, delete]
# Every cluster has them: they go with it, and the garbage collector has rights of its own.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, list, watch, create, patch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
# Children of an API that is used where it is installed. Not watched: they are looked at with all others.
- apiGroups: [monitoring.coreos.com]
  resources: [servicemonitors, podmonitors, prometheusrules]
  verbs: [get, list, create, patch, delete]
# What clusters refer to. Of claims also why pods do not run.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch]
# Why pods do not run, and which engine a scale-down takes: deletion costs are patched.
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, patch]
# Two operators that were started by mistake do no harm. The name of what is created cannot be ruled.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [autellix-operator, autellix-operator-all]
  verbs: [get, update]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [apps]
  resources: [replicasets]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
# Held only to be passed on: controllers find engines by it, and nobody can grant what he does not hold.
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch]
{{- end -}}
