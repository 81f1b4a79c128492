//! The keys of a volume's attributes: of `volume_context` in CSI, of `attributes` in the provider
//! protocol, of `volumeAttributes` in a pod.

/// What the keys begin with that are the kubelet's.
pub(crate) const KUBELET_PREFIX: &str = "csi.storage.k8s.io/";

/// The class, in the pod's namespace.
pub(crate) const CLASS: &str = "secretProviderClass";
pub(crate) const POD_NAME: &str = "csi.storage.k8s.io/pod.name";
pub(crate) const POD_NAMESPACE: &str = "csi.storage.k8s.io/pod.namespace";
pub(crate) const POD_UID: &str = "csi.storage.k8s.io/pod.uid";
pub(crate) const SERVICE_ACCOUNT: &str = "csi.storage.k8s.io/serviceAccount.name";

/// Whether the volume lives and dies with its pod.
pub(crate) const EPHEMERAL: &str = "csi.storage.k8s.io/ephemeral";

/// The tokens. A kubelet puts them into the secrets of a request from Kubernetes 1.35 on, with
/// `serviceAccountTokenInSecrets` (KEP-5538), else among the attributes.
pub(crate) const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";

/// Whether a key is for the author of the pod to choose, and so may be a parameter of the class.
pub(crate) fn is_user_attribute(key: &str) -> bool {
    !key.starts_with(KUBELET_PREFIX) && key != CLASS
}
