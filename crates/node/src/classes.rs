//! Where the node finds each SecretProviderClass: a seam that the Kubernetes API fills in a cluster,
//! and memory where there is none.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use lanyard_api::SecretProviderClass;
use lanyard_vocabulary::OutcomeCode;

use crate::memory_limit::ByteAmount;

/// The source of each SecretProviderClass that a volume names.
#[async_trait]
pub trait ClassSource: fmt::Debug + Send + Sync {
    /// The class of this name in this namespace.
    async fn class(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Arc<SecretProviderClass>, ClassError>;
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
    /// The class is larger than a node plugin keeps.
    #[error(
        "SecretProviderClass {namespace}/{name} takes {} of memory and may take {}: shorten \
         `spec.parameters`, `spec.secretObjects` and `metadata.annotations`",
        ByteAmount(*size), ByteAmount(*limit)
    )]
    TooLarge {
        /// The namespace of the class.
        namespace: String,
        /// The name of the class.
        name: String,
        /// What the class takes in memory, in bytes.
        size: u64,
        /// What a class may take, in bytes.
        limit: u64,
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
            Self::TooLarge { .. } => OutcomeCode::SecretProviderClassInvalid,
            Self::Unavailable { .. } => OutcomeCode::ClassSourceUnavailable,
        }
    }
}

/// Classes in memory.
#[derive(Debug, Clone, Default)]
pub struct InMemoryClassSource(BTreeMap<(String, String), Arc<SecretProviderClass>>);

impl InMemoryClassSource {
    /// The classes by their namespace and name.
    pub fn new(classes: impl IntoIterator<Item = SecretProviderClass>) -> Self {
        let key = |class: &SecretProviderClass| {
            let metadata = &class.metadata;
            (
                metadata.namespace.clone().unwrap_or_default(),
                metadata.name.clone().unwrap_or_default(),
            )
        };
        Self(classes.into_iter().map(|class| (key(&class), Arc::new(class))).collect())
    }
}

#[async_trait]
impl ClassSource for InMemoryClassSource {
    async fn class(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Arc<SecretProviderClass>, ClassError> {
        let key = (namespace.to_owned(), name.to_owned());
        self.0
            .get(&key)
            .cloned()
            .ok_or_else(|| ClassError::NotFound { namespace: key.0.clone(), name: key.1.clone() })
    }
}
