//! The stored sign-ins of users.

pub mod pkce;
pub mod sign_in_state;
