//! Rendering of the renewal timeline as an iCalendar feed.
//!
//! Source: RFC 5545 (iCalendar), and RFC 7986 for `NAME` and `REFRESH-INTERVAL`.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{RenewalMilestone, TimelineEntry};

/// Renders the calendar: one event for each future milestone and for each expiry that has passed.
///
/// `now` is the `DTSTAMP` of every event. The UID of an event identifies the identity and the
/// milestone, so that a renewal moves the event in a subscriber's calendar and adds none.
pub fn render_icalendar(entries: &[TimelineEntry], now: Timestamp) -> String {
    let mut lines = ICalendarWriter::default();
    for (name, value) in CALENDAR_HEADER {
        lines.write_property(name, value);
    }
    for entry in entries {
        for (at, moment) in entry.forecast.milestones() {
            if at > now || moment == RenewalMilestone::Expiry {
                write_event(&mut lines, entry, moment, (at, now));
            }
        }
    }
    lines.write_property("END", "VCALENDAR");
    lines.0
}

fn write_event(
    lines: &mut ICalendarWriter,
    entry: &TimelineEntry,
    moment: RenewalMilestone,
    (at, now): (Timestamp, Timestamp),
) {
    let TimelineEntry { namespace, cluster, component, .. } = entry;
    let uid = format!("{}.{component}.{cluster}.{namespace}@lanyard.dev", moment.name());
    let summary = format!("{}: {component} of {namespace}/{cluster}", moment.title());
    let hint = entry.hint.map(|hint| format!("\nNext: {hint}.")).unwrap_or_default();
    let description = format!(
        "Identity {component} of the hosted cluster {namespace}/{cluster}: {}.{hint}",
        milestone_description(moment)
    );
    lines.write_property("BEGIN", "VEVENT");
    lines.write_text("UID", &uid);
    lines.write_property("DTSTAMP", &format_date_time(now));
    lines.write_property("DTSTART", &format_date_time(at));
    lines.write_text("SUMMARY", &summary);
    lines.write_text("DESCRIPTION", &description);
    lines.write_property("CATEGORIES", &format!("LANYARD,{}", moment.name().to_ascii_uppercase()));
    // The event does not block time in the subscriber's calendar.
    lines.write_property("TRANSP", "TRANSPARENT");
    if moment >= RenewalMilestone::LastWrite {
        lines.write_property("BEGIN", "VALARM");
        lines.write_property("ACTION", "DISPLAY");
        lines.write_property("TRIGGER", "-P1D");
        lines.write_text("DESCRIPTION", &summary);
        lines.write_property("END", "VALARM");
    }
    lines.write_property("END", "VEVENT");
}

const fn milestone_description(moment: RenewalMilestone) -> &'static str {
    match moment {
        RenewalMilestone::RenewFrom => "a newer credential is expected in the vault from now on",
        RenewalMilestone::OverdueFrom => {
            "if no newer credential is in use by now, its renewal is overdue"
        }
        RenewalMilestone::LastWrite => "writes to the vault from now on are too late",
        RenewalMilestone::Expiry => "its credential ends",
    }
}

/// Formats a UTC `DATE-TIME` (RFC 5545, form 2).
fn format_date_time(at: Timestamp) -> String {
    at.to_zoned(TimeZone::UTC).strftime("%Y%m%dT%H%M%SZ").to_string()
}

/// A writer of folded content lines.
#[derive(Default)]
struct ICalendarWriter(String);

impl ICalendarWriter {
    /// Writes a property with a `TEXT` value.
    fn write_text(&mut self, name: &str, value: &str) {
        self.write_property(name, &escape_text(value));
    }

    /// Writes a content line, folded after 75 octets: continuation lines begin with a space.
    /// Folding never splits a character.
    fn write_property(&mut self, name: &str, value: &str) {
        let mut octets = 0;
        for letter in name.chars().chain([':']).chain(value.chars()) {
            if octets + letter.len_utf8() > MAX_LINE_OCTETS {
                self.0.push_str("\r\n ");
                octets = 1;
            }
            self.0.push(letter);
            octets += letter.len_utf8();
        }
        self.0.push_str("\r\n");
    }
}

/// Escapes a `TEXT` value (RFC 5545 3.3.11). Other control characters are not allowed in a calendar
/// and are removed.
fn escape_text(text: &str) -> String {
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

/// RFC 5545 3.1, line break excluded.
const MAX_LINE_OCTETS: usize = 75;

const CALENDAR_HEADER: [(&str, &str); 7] = [
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
