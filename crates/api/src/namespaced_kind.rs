//! The traits of Kubernetes kinds with a namespace.

/// Implements the traits of `k8s-openapi` for a type with the constants `API_VERSION` and `KIND`.
macro_rules! namespaced_kind {
    ($type:ident, $group:literal, $version:literal, $plural:expr) => {
        impl k8s_openapi::Resource for $type {
            const API_VERSION: &'static str = Self::API_VERSION;
            const GROUP: &'static str = $group;
            const KIND: &'static str = Self::KIND;
            const VERSION: &'static str = $version;
            const URL_PATH_SEGMENT: &'static str = $plural;
            type Scope = k8s_openapi::NamespaceResourceScope;
        }

        impl k8s_openapi::Metadata for $type {
            type Ty = ObjectMeta;

            fn metadata(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn metadata_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

pub(crate) use namespaced_kind;
