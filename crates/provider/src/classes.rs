//! Sources of SecretProviderClasses: the [`ClassSource`] trait, which the Kubernetes API implements in a
//! cluster, and an in-memory source.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use lanyard_api::SecretProviderClass;
use lanyard_clock::ErrorHint;
use lanyard_vocabulary::OutcomeCode;
use lanyard_volume::ByteAmount;

/// A source of SecretProviderClasses.
#[async_trait]
pub trait ClassSource: fmt::Debug + Send + Sync {
    /// Returns the SecretProviderClass with a name in a namespace.
    async fn class(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Arc<SecretProviderClass>, ClassError>;
}

/// A SecretProviderClass could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClassError {
    /// The SecretProviderClass does not exist.
    #[error("SecretProviderClass {namespace}/{name} not found")]
    NotFound {
        /// The namespace of the SecretProviderClass.
        namespace: String,
        /// The name of the SecretProviderClass.
        name: String,
    },
    /// The SecretProviderClass exceeds the size limit of the node plugin.
    #[error(
        "SecretProviderClass {namespace}/{name} needs {} of memory, above the limit of {}: shorten \
         `spec.parameters`, `spec.secretObjects` and `metadata.annotations`",
        ByteAmount(*size), ByteAmount(*limit)
    )]
    TooLarge {
        /// The namespace of the SecretProviderClass.
        namespace: String,
        /// The name of the SecretProviderClass.
        name: String,
        /// The size of the SecretProviderClass in memory, in bytes.
        size: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The source failed or did not answer.
    #[error("could not read SecretProviderClass {namespace}/{name}: {problem}")]
    Unavailable {
        /// The namespace of the SecretProviderClass.
        namespace: String,
        /// The name of the SecretProviderClass.
        name: String,
        /// The error of the source, as text.
        problem: String,
    },
}

impl ClassError {
    /// The stable outcome code.
    pub const fn code(&self) -> OutcomeCode {
        match self {
            Self::NotFound { .. } => OutcomeCode::SecretProviderClassNotFound,
            Self::TooLarge { .. } => OutcomeCode::SecretProviderClassInvalid,
            Self::Unavailable { .. } => OutcomeCode::ClassSourceUnavailable,
        }
    }
}

impl ErrorHint for ClassError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(self.code().hint()))
    }
}

/// A fixed set of SecretProviderClasses in memory.
#[derive(Debug, Clone, Default)]
pub struct InMemoryClassSource(BTreeMap<(String, String), Arc<SecretProviderClass>>);

impl InMemoryClassSource {
    /// Creates a source of these SecretProviderClasses, keyed by namespace and name.
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
