//! The vocabulary of lanyard: types that all crates share.
//!
//! The crate defines the nine control-plane components and their consumers, the hops of the identity flow and
//! their outcomes, the encodings of vault objects, the clouds with their endpoints, ids of Azure resources,
//! Go's duration syntax, and the one-line format of errors. To add a component, add its rows; other crates
//! iterate [`Component::ALL`] and do not match on components.
//!
//! The crate has no I/O, no clock and no runtime.

pub mod arm;
pub mod cloud;
pub mod component;
pub mod encoding;
mod error_chain;
mod go_duration;
pub mod hop;
pub mod identifier;
pub mod outcome_code;
pub mod role;
mod text_impls;
mod vault_key;

pub use arm::{ArmResourceId, ParseArmResourceIdError};
pub use cloud::Cloud;
pub use component::{Component, Consumer, CredentialPathSource};
pub use encoding::ObjectEncoding;
pub use error_chain::format_error_chain;
pub use go_duration::parse_go_duration;
pub use hop::{Hop, HopOutcome};
pub use identifier::{
    EntraClientId, EntraTenantId, InfraId, KeyVersion, ParseIdentifierError, SecretName,
    SubscriptionId, VaultName, random_uuid,
};
pub use outcome_code::{OutcomeCode, OutcomeCodeDetails, RecoveryMode};
pub use role::{RoleDefinitionId, RoleScope};
pub use vault_key::{ParseVaultKeyIdError, VaultKeyId};
