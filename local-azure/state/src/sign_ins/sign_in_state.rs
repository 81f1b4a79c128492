//! The state of sign-ins: settings, device codes and authorization codes.

use aws_lc_rs::digest::{SHA256, digest};
use jiff::Timestamp;
use lanyard_vocabulary::EntraClientId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::pkce::CodeChallenge;
use crate::keys::RedactedText;
use crate::table::{StoredTable, Table};
use crate::tracked::Tracked;

/// The state of sign-ins.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SignInState {
    pub settings: Tracked<SignInSettings>,
    /// By user code.
    device_codes: Table<String, DeviceAuthorization>,
    /// By the SHA-256 digest of the code, in hexadecimal digits.
    authorization_codes: Table<String, AuthorizationCode>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SignInSettings {
    /// The object id of the user who signs in without interaction in the device code flow and at the
    /// authorization endpoint; `None` if a person selects a user.
    pub automatic_user: Option<Uuid>,
    /// The key that encrypts refresh tokens; created with the first one.
    pub refresh_token_key: Option<RedactedText>,
}

/// A device authorization request (RFC 8628, 3.1).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeviceAuthorization {
    /// The code of the client; the user code is its start.
    pub device_code: RedactedText,
    pub client_id: EntraClientId,
    /// The tenant as in the path of the request.
    pub tenant_in_path: String,
    pub scope: RequestedScope,
    pub expires: Timestamp,
    pub status: DeviceAuthorizationStatus,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "status")]
pub enum DeviceAuthorizationStatus {
    /// No user has signed in.
    Pending,
    /// A user signed in.
    Approved { user: Uuid },
    /// The user cancelled the sign-in.
    Declined,
    /// The client has received its tokens.
    Redeemed,
}

/// An authorization code (RFC 6749, 4.1.2).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AuthorizationCode {
    pub client_id: EntraClientId,
    pub user: Uuid,
    /// The redirect URI exactly as requested.
    pub redirect_uri: String,
    pub scope: RequestedScope,
    pub challenge: Option<CodeChallenge>,
    pub nonce: Option<String>,
    pub expires: Timestamp,
    pub redeemed: bool,
}

/// The resource and permissions of a request, in the form of its endpoint version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestedScope {
    /// Version 1.0: `resource`.
    Resource(String),
    /// Version 2.0: `scope`.
    Scope(String),
}

/// The number of stored codes of a kind at which the next code replaces all of them.
const MAX_CODES: usize = 1_024;

impl SignInState {
    /// Calls `visit` with the name and the content of every stored table.
    pub fn for_each_table(&mut self, visit: &mut dyn FnMut(&'static str, &mut dyn StoredTable)) {
        let Self { settings, device_codes, authorization_codes } = self;
        visit("sign-ins.settings", settings);
        visit("sign-ins.device-codes", device_codes);
        visit("sign-ins.authorization-codes", authorization_codes);
    }

    /// The requests of devices by user code, including expired ones.
    pub fn device_authorizations(&self) -> impl Iterator<Item = (&String, &DeviceAuthorization)> {
        self.device_codes.iter()
    }

    pub fn device_authorization(&self, user_code: &str) -> Option<&DeviceAuthorization> {
        self.device_codes.get(&user_code.to_ascii_uppercase())
    }

    /// Changes the status of a device's request.
    pub fn set_device_status(&mut self, user_code: &str, status: DeviceAuthorizationStatus) {
        if let Some(row) = self.device_codes.get_mut(&user_code.to_ascii_uppercase()) {
            row.status = status;
        }
    }

    /// Stores a device's request, and drops those that expired more than an hour ago.
    pub fn insert_device_authorization(
        &mut self,
        user_code: String,
        row: DeviceAuthorization,
        now: Timestamp,
    ) {
        let is_full = self.device_codes.len() >= MAX_CODES;
        self.device_codes.extract_if(|_, row| is_full || is_long_expired(row.expires, now));
        self.device_codes.insert(user_code, row);
    }

    pub fn authorization_code(&self, code: &str) -> Option<&AuthorizationCode> {
        self.authorization_codes.get(&code_digest(code))
    }

    /// Records that a code was exchanged for tokens.
    pub fn mark_code_redeemed(&mut self, code: &str) {
        if let Some(row) = self.authorization_codes.get_mut(&code_digest(code)) {
            row.redeemed = true;
        }
    }

    /// Stores a code, and drops those that expired more than an hour ago.
    pub fn insert_authorization_code(
        &mut self,
        code: &str,
        row: AuthorizationCode,
        now: Timestamp,
    ) {
        let is_full = self.authorization_codes.len() >= MAX_CODES;
        self.authorization_codes.extract_if(|_, row| is_full || is_long_expired(row.expires, now));
        self.authorization_codes.insert(code_digest(code), row);
    }
}

/// Whether a code expired so long ago that its own error is no longer needed.
fn is_long_expired(expires: Timestamp, now: Timestamp) -> bool {
    now.duration_since(expires).as_hours() >= 1
}

fn code_digest(code: &str) -> String {
    hex::encode(digest(&SHA256, code.as_bytes()))
}
