//! Where the node finds each SecretProviderClass: a seam that the Kubernetes API fills in a cluster,
//! and memory where there is none.

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;
use lanyard_api::SecretProviderClass;
use lanyard_vocabulary::OutcomeCode;

/// The source of each SecretProviderClass that a volume names.
#[async_trait]
pub trait ClassSource: fmt::Debug + Send + Sync {
    /// The class of this name in this namespace.
    async fn class(&self, namespace: &str, name: &str) -> Result<SecretProviderClass, ClassError>;
}

/// A class could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClassError {
    /// There is no class of that name.
    #[error("there is no SecretProviderClass {namespace}/{name}")]
    NotFound {
        /// The namespace that was looked in.
        namespace: String,
        /// The name that was looked for.
        name: String,
    },
    /// The source did not answer.
    #[error("could not look for SecretProviderClass {namespace}/{name}: {problem}")]
    Unavailable {
        /// The namespace that was to be looked in.
        namespace: String,
        /// The name that was to be looked for.
        name: String,
        /// What came back.
        problem: String,
    },
}

impl ClassError {
    /// What to do next.
    pub const fn hint(&self) -> &'static str {
        self.code().hint()
    }

    /// The stable code.
    pub const fn code(&self) -> OutcomeCode {
        match self {
            Self::NotFound { .. } => OutcomeCode::SecretProviderClassNotFound,
            Self::Unavailable { .. } => OutcomeCode::ClassSourceUnavailable,
        }
    }
}

/// Classes in memory.
#[derive(Debug, Clone, Default)]
pub struct MemoryClasses(BTreeMap<(String, String), SecretProviderClass>);

impl MemoryClasses {
    /// The classes by their namespace and name.
    pub fn new(classes: impl IntoIterator<Item = SecretProviderClass>) -> Self {
        let key = |class: &SecretProviderClass| {
            let metadata = &class.metadata;
            (
                metadata.namespace.clone().unwrap_or_default(),
                metadata.name.clone().unwrap_or_default(),
            )
        };
        Self(classes.into_iter().map(|class| (key(&class), class)).collect())
    }
}

#[async_trait]
impl ClassSource for MemoryClasses {
    async fn class(&self, namespace: &str, name: &str) -> Result<SecretProviderClass, ClassError> {
        let key = (namespace.to_owned(), name.to_owned());
        self.0
            .get(&key)
            .cloned()
            .ok_or_else(|| ClassError::NotFound { namespace: key.0.clone(), name: key.1.clone() })
    }
}
