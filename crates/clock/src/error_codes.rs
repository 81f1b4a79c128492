//! Tables of the error codes of services, from which error types take their hints.

use std::borrow::Cow;

use crate::RetryClass;

/// The error codes of one service, in groups with one source each.
///
/// ```
/// use lanyard_clock::{ErrorCodeGroup, ErrorCodeRow, ErrorCodeTable, ErrorReply, RetryClass};
///
/// const NO_PAPER: ErrorCodeRow =
///     ErrorCodeRow::new(&["NoPaper"], RetryClass::Denied, "The tray is empty.", "fill the tray");
/// const PRINTER: ErrorCodeTable = ErrorCodeTable {
///     service: "the printer",
///     groups: &[ErrorCodeGroup { source: "https://printer.example/errors", rows: &[NO_PAPER] }],
/// };
///
/// let reply = |code| ErrorReply { status: Some(503), code: Some(code), message: "Help." };
/// assert_eq!(PRINTER.hint(reply("NoPaper")), "fill the tray");
/// assert!(PRINTER.hint(reply("OnFire")).ends_with("the service says: Help"));
/// ```
#[derive(Debug)]
pub struct ErrorCodeTable {
    /// The name of the service in hints, such as `Azure Key Vault`.
    pub service: &'static str,
    /// The rows, by their source.
    pub groups: &'static [ErrorCodeGroup],
}

/// Rows with the same source.
#[derive(Debug)]
pub struct ErrorCodeGroup {
    /// The URL of the documentation of the codes.
    pub source: &'static str,
    /// The rows, in any order: the most specific row for a reply applies.
    pub rows: &'static [ErrorCodeRow],
}

/// The meaning of an error reply, and what its reader does next.
#[derive(Debug, Clone, Copy)]
pub struct ErrorCodeRow {
    /// The error codes of the row.
    pub codes: RowCodes,
    /// The ranges of statuses of the row, each with its first and last status; empty for all.
    pub statuses: &'static [(u16, u16)],
    /// A part of the service's message in lower case, if several causes share a code; empty for all messages.
    pub message_part: &'static str,
    /// Whether repeating the request can succeed.
    pub class: RetryClass,
    /// The cause, as a sentence.
    pub meaning: &'static str,
    /// The next step of the reader, with the form of [`ErrorHint::hint`](crate::ErrorHint::hint).
    pub next_step: &'static str,
    /// Whether the caller lacks a permission that an administrator can grant. A caller that knows which
    /// permission it needs names it in place of the next step ([`ErrorCodeTable::permission_hint`]).
    pub is_missing_permission: bool,
}

/// The error codes of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowCodes {
    /// These codes, without regard to case.
    Listed(&'static [&'static str]),
    /// Replies without an error code.
    Missing,
    /// Every reply with one of the row's statuses, if no other row applies: HTTP defines the meaning of the
    /// status for all codes.
    Any,
}

/// What an error reply of a service says.
#[derive(Debug, Clone, Copy)]
pub struct ErrorReply<'a> {
    /// The HTTP status; `None` for the error of an operation that failed after its request was accepted.
    pub status: Option<u16>,
    /// The most specific error code; `None` if the reply has none.
    pub code: Option<&'a str>,
    /// The service's message, without secrets.
    pub message: &'a str,
}

impl ErrorCodeRow {
    /// The row of some error codes.
    pub const fn new(
        codes: &'static [&'static str],
        class: RetryClass,
        meaning: &'static str,
        next_step: &'static str,
    ) -> Self {
        Self {
            codes: RowCodes::Listed(codes),
            statuses: &[],
            message_part: "",
            class,
            meaning,
            next_step,
            is_missing_permission: false,
        }
    }

    /// The row of replies without an error code.
    pub const fn without_code(
        class: RetryClass,
        meaning: &'static str,
        next_step: &'static str,
    ) -> Self {
        Self { codes: RowCodes::Missing, ..Self::new(&[], class, meaning, next_step) }
    }

    /// The row of statuses, for all replies to which no other row applies.
    pub const fn of_status(
        statuses: &'static [(u16, u16)],
        class: RetryClass,
        meaning: &'static str,
        next_step: &'static str,
    ) -> Self {
        Self { codes: RowCodes::Any, ..Self::new(&[], class, meaning, next_step) }
            .with_statuses(statuses)
    }

    /// The row for these ranges of statuses only.
    #[must_use]
    pub const fn with_statuses(self, statuses: &'static [(u16, u16)]) -> Self {
        Self { statuses, ..self }
    }

    /// The row for messages with this part only.
    #[must_use]
    pub const fn with_message_part(self, message_part: &'static str) -> Self {
        Self { message_part, ..self }
    }

    /// The row of a missing permission.
    #[must_use]
    pub const fn of_missing_permission(self) -> Self {
        Self { is_missing_permission: true, ..self }
    }

    /// Whether the row has the status. An operation that failed after its request has no status, only a code.
    fn has_status(&self, status: Option<u16>) -> bool {
        let Some(status) = status else { return matches!(self.codes, RowCodes::Listed(_)) };
        let is_in = |(first, last): &(u16, u16)| (*first..=*last).contains(&status);
        self.statuses.is_empty() || self.statuses.iter().any(is_in)
    }

    fn has_message_part(&self, message: &str) -> bool {
        self.message_part.is_empty() || message.to_ascii_lowercase().contains(self.message_part)
    }

    fn applies_to(&self, reply: ErrorReply<'_>) -> bool {
        let has_code = match (self.codes, reply.code) {
            (RowCodes::Listed(codes), Some(code)) => {
                codes.iter().any(|it| it.eq_ignore_ascii_case(code))
            }
            (RowCodes::Listed(_), None) | (RowCodes::Missing, Some(_)) => false,
            (RowCodes::Missing, None) | (RowCodes::Any, _) => true,
        };
        has_code && self.has_status(reply.status) && self.has_message_part(reply.message)
    }

    /// Which of several rows for a reply applies: the greatest.
    const fn specificity(&self) -> (u8, bool, bool) {
        let codes = match self.codes {
            RowCodes::Listed(_) => 2,
            RowCodes::Any => 1,
            RowCodes::Missing => 0,
        };
        (codes, !self.message_part.is_empty(), !self.statuses.is_empty())
    }
}

impl ErrorCodeTable {
    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = &'static ErrorCodeRow> + use<> {
        self.groups.iter().flat_map(|group| group.rows)
    }

    /// The row of a reply, of equally specific ones the last; `None` if the table has none.
    pub fn find(&self, reply: ErrorReply<'_>) -> Option<&'static ErrorCodeRow> {
        self.rows().filter(|row| row.applies_to(reply)).max_by_key(|row| row.specificity())
    }

    /// The row of a status, whatever the code is; `None` if HTTP does not define what to do.
    pub fn find_by_status(&self, status: u16) -> Option<&'static ErrorCodeRow> {
        self.rows().find(|row| row.codes == RowCodes::Any && row.has_status(Some(status)))
    }

    /// The retry class of a reply: that of its code, or that of its status if the code's is permanent or unknown.
    /// [`RetryClass::Denied`] if the table has no row for the reply.
    pub fn retry_class(&self, reply: ErrorReply<'_>) -> RetryClass {
        let by_status = reply.status.and_then(|status| self.find_by_status(status));
        let row = self.find(reply).filter(|row| !row.class.is_permanent() || by_status.is_none());
        row.or(by_status).map_or(RetryClass::Denied, |row| row.class)
    }

    /// The next step after a reply. If the table has no row for it, the hint says so and repeats the service's
    /// message.
    pub fn hint(&self, reply: ErrorReply<'_>) -> Cow<'static, str> {
        self.find(reply).map_or_else(|| self.unknown_hint(reply).into(), |row| row.next_step.into())
    }

    /// Like [`Self::hint`], for a caller that knows which permission its request needs: `grant` is the next step
    /// if that permission is missing.
    pub fn permission_hint(&self, reply: ErrorReply<'_>, grant: &'static str) -> Cow<'static, str> {
        match self.find(reply) {
            Some(row) if row.is_missing_permission => grant.into(),
            _ => self.hint(reply),
        }
    }

    fn unknown_hint(&self, reply: ErrorReply<'_>) -> String {
        let ErrorReply { status, code, message } = reply;
        let service = self.service;
        let subject = match (code, status) {
            (Some(code), _) => format!("the error code `{code}` of {service}"),
            (None, Some(status)) => {
                format!("the status {status} of {service} without an error code")
            }
            (None, None) => format!("the error of {service} without a code"),
        };
        let message = message.trim_end_matches('.');
        let text = if message.is_empty() {
            String::new()
        } else {
            format!("; the service says: {message}")
        };
        format!("look up {subject}, for which lanyard has no advice{text}")
    }
}

#[cfg(test)]
mod tests {
    use RetryClass::{Busy, Denied, Invalid, Propagating, Transient};

    use super::*;

    const THROTTLED: RetryClass = RetryClass::Throttled { after: None };

    const TABLE: ErrorCodeTable = ErrorCodeTable {
        service: "the service",
        groups: &[ErrorCodeGroup {
            source: "",
            rows: &[
                ErrorCodeRow::new(&["Shared"], Invalid, "", "any cause"),
                ErrorCodeRow::new(&["Shared"], Propagating, "", "the quota")
                    .with_message_part("quota"),
                ErrorCodeRow::new(&["Shared"], Busy, "", "busy").with_statuses(&[(409, 409)]),
                ErrorCodeRow::new(&["Denied"], Denied, "", "a role").of_missing_permission(),
                ErrorCodeRow::of_status(&[(429, 429), (500, 599)], THROTTLED, "", "wait"),
                ErrorCodeRow::without_code(Transient, "", "a proxy"),
            ],
        }],
    };

    fn reply<'a>(status: u16, code: &'a str, message: &'a str) -> ErrorReply<'a> {
        let code = Some(code).filter(|code| !code.is_empty());
        ErrorReply { status: Some(status).filter(|status| *status != 0), code, message }
    }

    #[test]
    fn most_specific_row_applies() {
        for (status, code, message, class) in [
            (400, "Shared", "", Some(Invalid)),
            (400, "shared", "", Some(Invalid)),
            (400, "Shared", "the Quota is used up", Some(Propagating)),
            (409, "Shared", "the quota is used up", Some(Propagating)),
            (409, "Shared", "", Some(Busy)),
            (0, "Shared", "", Some(Busy)),
            (429, "Shared", "", Some(Invalid)),
            (503, "Unknown", "", Some(THROTTLED)),
            (503, "", "", Some(THROTTLED)),
            (403, "", "", Some(Transient)),
            (403, "Unknown", "", None),
            (0, "Unknown", "", None),
            (0, "", "", None),
        ] {
            let found = TABLE.find(reply(status, code, message)).map(|row| row.class);
            assert_eq!(found, class, "{status} {code} {message}");
        }
        assert_eq!(TABLE.find_by_status(429).map(|row| row.class), Some(THROTTLED));
        assert!(TABLE.find_by_status(403).is_none());
    }

    #[test]
    fn status_decides_whether_a_permanent_or_unknown_code_is_retried() {
        for (status, code, class) in [
            (400, "Shared", Invalid),
            (409, "Shared", Busy),
            (429, "Shared", THROTTLED),
            (503, "Unknown", THROTTLED),
            (403, "", Transient),
            (403, "Unknown", Denied),
            (0, "Shared", Busy),
        ] {
            assert_eq!(TABLE.retry_class(reply(status, code, "")), class, "{status} {code}");
        }
    }

    #[test]
    fn unknown_code_gets_no_advice_but_the_text_of_the_service() {
        for (reply, hint) in [
            (
                reply(403, "Unknown", "No."),
                "look up the error code `Unknown` of the service, for which lanyard has no advice; the service says: No",
            ),
            (
                reply(0, "Unknown", ""),
                "look up the error code `Unknown` of the service, for which lanyard has no advice",
            ),
        ] {
            assert_eq!(TABLE.hint(reply), hint);
        }
    }

    #[test]
    fn caller_names_the_permission_only_if_it_is_missing() {
        let hint = |code| TABLE.permission_hint(reply(403, code, ""), "this role");
        assert_eq!(hint("Denied"), "this role");
        assert_eq!(hint("Shared"), "any cause");
    }
}
