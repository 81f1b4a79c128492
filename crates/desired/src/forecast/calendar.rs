//! A timeline as a calendar that others subscribe to.
//!
//! Source: RFC 5545 (iCalendar), and RFC 7986 for `NAME` and `REFRESH-INTERVAL`.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{Entry, Moment};

/// The calendar: an event for each moment that lies ahead, and for each end that has passed.
///
/// `now` is the stamp of every event. The UID of an event says whose and which moment it is, so
/// that a renewal moves the event of a subscriber's calendar and adds none.
pub fn calendar(entries: &[Entry], now: Timestamp) -> String {
    let mut lines = Lines::default();
    for (name, value) in HEAD {
        lines.raw(name, value);
    }
    for entry in entries {
        for (at, moment) in entry.forecast.moments() {
            if at > now || moment == Moment::Expiry {
                event(&mut lines, entry, moment, (at, now));
            }
        }
    }
    lines.raw("END", "VCALENDAR");
    lines.0
}

fn event(lines: &mut Lines, entry: &Entry, moment: Moment, (at, now): (Timestamp, Timestamp)) {
    let Entry { namespace, cluster, component, .. } = entry;
    let uid = format!("{}.{component}.{cluster}.{namespace}@lanyard.dev", moment.name());
    let summary = format!("{}: {component} of {namespace}/{cluster}", moment.title());
    let hint = entry.hint.map(|hint| format!("\nNext: {hint}.")).unwrap_or_default();
    let description = format!(
        "Identity {component} of the hosted cluster {namespace}/{cluster}: {}.{hint}",
        meaning(moment)
    );
    lines.raw("BEGIN", "VEVENT");
    lines.text("UID", &uid);
    lines.raw("DTSTAMP", &stamp(now));
    lines.raw("DTSTART", &stamp(at));
    lines.text("SUMMARY", &summary);
    lines.text("DESCRIPTION", &description);
    lines.raw("CATEGORIES", &format!("LANYARD,{}", moment.name().to_ascii_uppercase()));
    // Nobody is busy while a certificate ends.
    lines.raw("TRANSP", "TRANSPARENT");
    if moment >= Moment::LastWrite {
        lines.raw("BEGIN", "VALARM");
        lines.raw("ACTION", "DISPLAY");
        lines.raw("TRIGGER", "-P1D");
        lines.text("DESCRIPTION", &summary);
        lines.raw("END", "VALARM");
    }
    lines.raw("END", "VEVENT");
}

const fn meaning(moment: Moment) -> &'static str {
    match moment {
        Moment::RenewFrom => "from here on a newer credential is to be expected in the vault",
        Moment::OverdueFrom => "if no newer credential is in use by now, its renewal is overdue",
        Moment::LastWrite => "what is written to the vault from here on comes too late",
        Moment::Expiry => "its credential ends",
    }
}

/// Form 2 of `DATE-TIME`: in UTC.
fn stamp(at: Timestamp) -> String {
    at.to_zoned(TimeZone::UTC).strftime("%Y%m%dT%H%M%SZ").to_string()
}

/// Content lines, folded.
#[derive(Default)]
struct Lines(String);

impl Lines {
    /// A value of `TEXT`.
    fn text(&mut self, name: &str, value: &str) {
        self.raw(name, &escaped(value));
    }

    /// A line of at most 75 octets; the rest goes on in lines that begin with a space. A character
    /// is never cut in two.
    fn raw(&mut self, name: &str, value: &str) {
        let mut octets = 0;
        for letter in name.chars().chain([':']).chain(value.chars()) {
            if octets + letter.len_utf8() > MOST_OCTETS {
                self.0.push_str("\r\n ");
                octets = 1;
            }
            self.0.push(letter);
            octets += letter.len_utf8();
        }
        self.0.push_str("\r\n");
    }
}

/// RFC 5545 3.3.11. Other control characters may not stand in a calendar.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\\' | ';' | ',' => escaped.extend(['\\', letter]),
            '\n' => escaped.push_str("\\n"),
            letter if letter.is_control() => {}
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// RFC 5545 3.1, the line break not counted.
const MOST_OCTETS: usize = 75;

const HEAD: [(&str, &str); 7] = [
    ("BEGIN", "VCALENDAR"),
    ("VERSION", "2.0"),
    ("PRODID", "-//lanyard//forecast//EN"),
    ("CALSCALE", "GREGORIAN"),
    ("METHOD", "PUBLISH"),
    ("NAME", "Azure identities"),
    ("REFRESH-INTERVAL;VALUE=DURATION", "PT1H"),
];

#[cfg(test)]
mod tests;
