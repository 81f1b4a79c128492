//! The kinds of vault objects, and the permissions on them.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyVaultObjectKind {
    Secret,
    Key,
    Certificate,
}

impl KeyVaultObjectKind {
    /// The first segment of the paths and ids.
    pub(crate) const fn collection(self) -> &'static str {
        match self {
            Self::Secret => "secrets",
            Self::Key => "keys",
            Self::Certificate => "certificates",
        }
    }

    /// The kind as a noun in messages.
    pub(crate) const fn noun(self) -> &'static str {
        match self {
            Self::Secret => "secret",
            Self::Key => "key",
            Self::Certificate => "certificate",
        }
    }

    /// The kind as a prefix of error codes.
    pub(crate) const fn error_code_prefix(self) -> &'static str {
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

/// A permission on vault objects, in both permission models.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VaultPermission {
    /// The kind of object.
    pub(crate) kind: KeyVaultObjectKind,
    /// The data action of the role model.
    pub(crate) action: &'static str,
    /// The permission of the access-policy model.
    pub(crate) permission: &'static str,
}

macro_rules! right {
    ($kind:ident, $action:literal, $permission:literal) => {
        VaultPermission {
            kind: KeyVaultObjectKind::$kind,
            action: concat!("Microsoft.KeyVault/vaults/", $action),
            permission: $permission,
        }
    };
}

pub(crate) const GET_SECRET: VaultPermission = right!(Secret, "secrets/getSecret/action", "get");
pub(crate) const SET_SECRET: VaultPermission = right!(Secret, "secrets/setSecret/action", "set");
pub(crate) const UPDATE_SECRET: VaultPermission = right!(Secret, "secrets/update/action", "set");
pub(crate) const LIST_SECRETS: VaultPermission =
    right!(Secret, "secrets/readMetadata/action", "list");
pub(crate) const DELETE_SECRET: VaultPermission = right!(Secret, "secrets/delete", "delete");
pub(crate) const GET_DELETED_SECRET: VaultPermission =
    right!(Secret, "secrets/readMetadata/action", "get");
pub(crate) const RECOVER_SECRET: VaultPermission =
    right!(Secret, "secrets/recover/action", "recover");
pub(crate) const PURGE_SECRET: VaultPermission = right!(Secret, "secrets/purge/action", "purge");
pub(crate) const GET_KEY: VaultPermission = right!(Key, "keys/read", "get");
pub(crate) const LIST_KEYS: VaultPermission = right!(Key, "keys/read", "list");
pub(crate) const CREATE_KEY: VaultPermission = right!(Key, "keys/create/action", "create");
pub(crate) const IMPORT_KEY: VaultPermission = right!(Key, "keys/import/action", "import");
pub(crate) const UPDATE_KEY: VaultPermission = right!(Key, "keys/update/action", "update");
pub(crate) const ENCRYPT: VaultPermission = right!(Key, "keys/encrypt/action", "encrypt");
pub(crate) const DECRYPT: VaultPermission = right!(Key, "keys/decrypt/action", "decrypt");
pub(crate) const WRAP: VaultPermission = right!(Key, "keys/wrap/action", "wrapKey");
pub(crate) const UNWRAP: VaultPermission = right!(Key, "keys/unwrap/action", "unwrapKey");
pub(crate) const GET_CERTIFICATE: VaultPermission = right!(Certificate, "certificates/read", "get");
pub(crate) const LIST_CERTIFICATES: VaultPermission =
    right!(Certificate, "certificates/read", "list");
