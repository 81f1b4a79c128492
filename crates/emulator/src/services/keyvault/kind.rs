//! The kinds of vault objects and the rights on them.

/// A kind of vault object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectKind {
    /// A secret.
    Secret,
    /// A key.
    Key,
    /// A certificate.
    Certificate,
}

impl ObjectKind {
    /// The first segment of the paths and ids.
    pub(crate) const fn collection(self) -> &'static str {
        match self {
            Self::Secret => "secrets",
            Self::Key => "keys",
            Self::Certificate => "certificates",
        }
    }

    /// The kind in a sentence.
    pub(crate) const fn noun(self) -> &'static str {
        match self {
            Self::Secret => "secret",
            Self::Key => "key",
            Self::Certificate => "certificate",
        }
    }

    /// The kind in an error code.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Secret => "Secret",
            Self::Key => "Key",
            Self::Certificate => "Certificate",
        }
    }

    /// The code of a missing object.
    pub(crate) const fn not_found_code(self) -> &'static str {
        match self {
            Self::Secret => "SecretNotFound",
            Self::Key => "KeyNotFound",
            Self::Certificate => "CertificateNotFound",
        }
    }
}

/// A right on vault objects, as each of the two permission models spells it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Right {
    /// The kind of object.
    pub(crate) kind: ObjectKind,
    /// The data action of the role model.
    pub(crate) action: &'static str,
    /// The permission of the access-policy model.
    pub(crate) permission: &'static str,
}

macro_rules! right {
    ($kind:ident, $action:literal, $permission:literal) => {
        Right {
            kind: ObjectKind::$kind,
            action: concat!("Microsoft.KeyVault/vaults/", $action),
            permission: $permission,
        }
    };
}

pub(crate) const GET_SECRET: Right = right!(Secret, "secrets/getSecret/action", "get");
pub(crate) const SET_SECRET: Right = right!(Secret, "secrets/setSecret/action", "set");
pub(crate) const UPDATE_SECRET: Right = right!(Secret, "secrets/update/action", "set");
pub(crate) const LIST_SECRETS: Right = right!(Secret, "secrets/readMetadata/action", "list");
pub(crate) const DELETE_SECRET: Right = right!(Secret, "secrets/delete", "delete");
pub(crate) const GET_DELETED_SECRET: Right = right!(Secret, "secrets/readMetadata/action", "get");
pub(crate) const RECOVER_SECRET: Right = right!(Secret, "secrets/recover/action", "recover");
pub(crate) const PURGE_SECRET: Right = right!(Secret, "secrets/purge/action", "purge");
pub(crate) const GET_KEY: Right = right!(Key, "keys/read", "get");
pub(crate) const LIST_KEYS: Right = right!(Key, "keys/read", "list");
pub(crate) const CREATE_KEY: Right = right!(Key, "keys/create/action", "create");
pub(crate) const IMPORT_KEY: Right = right!(Key, "keys/import/action", "import");
pub(crate) const UPDATE_KEY: Right = right!(Key, "keys/update/action", "update");
pub(crate) const ENCRYPT: Right = right!(Key, "keys/encrypt/action", "encrypt");
pub(crate) const DECRYPT: Right = right!(Key, "keys/decrypt/action", "decrypt");
pub(crate) const WRAP: Right = right!(Key, "keys/wrap/action", "wrapKey");
pub(crate) const UNWRAP: Right = right!(Key, "keys/unwrap/action", "unwrapKey");
pub(crate) const GET_CERTIFICATE: Right = right!(Certificate, "certificates/read", "get");
pub(crate) const LIST_CERTIFICATES: Right = right!(Certificate, "certificates/read", "list");
