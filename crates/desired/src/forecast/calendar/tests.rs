use jiff::ToSpan;
use proptest::prelude::*;

use super::super::tests::identities_of_cluster;
use super::super::{ForecastTimestamps, RenewalPolicy, renewal_timeline};
use super::*;

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn timestamps_ending_in_days(days: i64) -> ForecastTimestamps {
    ForecastTimestamps {
        renew_after: Some(now() + (days * 12).hours()),
        not_after: Some(now() + (days * 24).hours()),
        ..ForecastTimestamps::default()
    }
}

fn calendar_of(name: &str, component: &str, stamps: ForecastTimestamps, at: Timestamp) -> String {
    render_icalendar(
        &renewal_timeline(
            &[identities_of_cluster(name, &[(component, stamps)])],
            &RenewalPolicy::default(),
            at,
        ),
        at,
    )
}

/// A property of a calendar.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ICalendarProperty {
    name: String,
    parameters: Vec<String>,
    value: String,
}

/// Parses the grammar of RFC 5545 3.1; written from the RFC, independently of the writer.
fn parse_icalendar(text: &str) -> Vec<ICalendarProperty> {
    assert!(text.ends_with("\r\n"));
    assert!(!text.replace("\r\n", "").contains(['\r', '\n']), "every line ends with CRLF");
    for line in text.split("\r\n") {
        assert!(line.len() <= 75, "{} octets: {line}", line.len());
    }
    let unfolded = text.replace("\r\n ", "");
    unfolded.trim_end_matches("\r\n").split("\r\n").map(parse_property).collect()
}

fn parse_property(line: &str) -> ICalendarProperty {
    let (head, value) = line.split_once(':').unwrap_or_else(|| panic!("no value: {line}"));
    let mut parts = head.split(';').map(str::to_owned);
    let name = parts.next().unwrap();
    assert!(name.chars().all(|it| it.is_ascii_alphanumeric() || it == '-') && !name.is_empty());
    // VALUE-CHAR = WSP / %x21-7E / NON-US-ASCII
    assert!(value.chars().all(|it| it == '\t' || (it >= ' ' && it != '\u{7f}')), "{value:?}");
    ICalendarProperty { name, parameters: parts.collect(), value: value.to_owned() }
}

/// Unescapes a TEXT value; panics on a bare separator or an unknown escape.
fn unescape(value: &str) -> String {
    let mut text = String::new();
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some('n' | 'N') => text.push('\n'),
                Some(it @ ('\\' | ';' | ',')) => text.push(it),
                other => panic!("unknown escape {other:?} in {value:?}"),
            },
            ';' | ',' => panic!("bare separator in {value:?}"),
            letter => text.push(letter),
        }
    }
    text
}

/// Asserts that components are properly nested.
fn assert_nested(lines: &[ICalendarProperty]) {
    let mut open: Vec<&str> = Vec::new();
    for line in lines {
        match line.name.as_str() {
            "BEGIN" => {
                let parent = open.last().copied();
                let allowed = match line.value.as_str() {
                    "VCALENDAR" => parent.is_none(),
                    "VEVENT" => parent == Some("VCALENDAR"),
                    "VALARM" => parent == Some("VEVENT"),
                    other => panic!("unknown component {other}"),
                };
                assert!(allowed, "{} in {parent:?}", line.value);
                open.push(&line.value);
            }
            "END" => assert_eq!(open.pop(), Some(line.value.as_str())),
            _ => assert!(!open.is_empty(), "{line:?} outside"),
        }
    }
    assert!(open.is_empty());
}

/// Returns the properties of each event, without those of its alarms.
fn events(lines: &[ICalendarProperty]) -> Vec<Vec<&ICalendarProperty>> {
    let mut events = Vec::new();
    let mut current: Option<Vec<&ICalendarProperty>> = None;
    let mut in_alarm = false;
    for line in lines {
        match (line.name.as_str(), line.value.as_str()) {
            ("BEGIN", "VEVENT") => current = Some(Vec::new()),
            ("END", "VEVENT") => events.extend(current.take()),
            ("BEGIN", "VALARM") => in_alarm = true,
            ("END", "VALARM") => in_alarm = false,
            _ if !in_alarm => {
                if let Some(event) = &mut current {
                    event.push(line);
                }
            }
            _ => {}
        }
    }
    events
}

fn property_value<'a>(event: &[&'a ICalendarProperty], name: &str) -> &'a str {
    let mut found = event.iter().filter(|line| line.name == name);
    let value = &found.next().unwrap_or_else(|| panic!("no {name}")).value;
    assert!(found.next().is_none(), "{name} twice");
    value
}

#[test]
fn a_calendar_has_an_event_for_each_moment_ahead() {
    let lines =
        parse_icalendar(&calendar_of("harbour", "disk", timestamps_ending_in_days(90), now()));
    assert_nested(&lines);
    assert_eq!((lines[0].name.as_str(), lines[1].value.as_str()), ("BEGIN", "2.0"));
    let events = events(&lines);
    let dates: Vec<_> = events
        .iter()
        .map(|event| (property_value(event, "UID"), property_value(event, "DTSTART")))
        .collect();
    assert_eq!(
        dates,
        [
            ("renew-from.disk.harbour.clusters@lanyard.dev", "20260215T000000Z"),
            ("overdue-from.disk.harbour.clusters@lanyard.dev", "20260216T000543Z"),
            ("last-write.disk.harbour.clusters@lanyard.dev", "20260331T235417Z"),
            ("expiry.disk.harbour.clusters@lanyard.dev", "20260401T000000Z"),
        ]
    );
    for event in &events {
        assert_eq!(property_value(event, "DTSTAMP"), "20260101T000000Z");
        assert!(unescape(property_value(event, "SUMMARY")).ends_with("disk of clusters/harbour"));
    }
    let alarms = lines.iter().filter(|line| line.name == "TRIGGER").count();
    assert_eq!(alarms, 2, "alarms ring a day before");
}

#[test]
fn past_milestones_are_omitted_except_expiry() {
    let later = now() + (50 * 24).hours();
    let text = calendar_of("harbour", "disk", timestamps_ending_in_days(90), later);
    assert_eq!(events(&parse_icalendar(&text)).len(), 2);
    let ended =
        calendar_of("harbour", "disk", timestamps_ending_in_days(90), now() + (91 * 24).hours());
    let lines = parse_icalendar(&ended);
    let events = events(&lines);
    assert_eq!(events.len(), 1);
    let description = unescape(property_value(&events[0], "DESCRIPTION"));
    assert!(description.contains("ends.\nNext: renew the vault's secret, and"), "{description}");
    assert!(
        parse_icalendar(&calendar_of("harbour", "disk", ForecastTimestamps::default(), now()))
            .len()
            > 5,
        "an empty calendar"
    );
}

#[test]
fn a_renewal_moves_events_and_adds_none() {
    let uids = |days| {
        let text = calendar_of("harbour", "disk", timestamps_ending_in_days(days), now());
        let lines = parse_icalendar(&text);
        events(&lines)
            .iter()
            .map(|event| property_value(event, "UID").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(uids(90), uids(180));
    let several = renewal_timeline(
        &[
            identities_of_cluster(
                "a",
                &[("disk", timestamps_ending_in_days(9)), ("file", timestamps_ending_in_days(9))],
            ),
            identities_of_cluster("b", &[("disk", timestamps_ending_in_days(9))]),
        ],
        &RenewalPolicy::default(),
        now(),
    );
    let lines = parse_icalendar(&render_icalendar(&several, now()));
    let mut all: Vec<_> =
        events(&lines).iter().map(|event| property_value(event, "UID").to_owned()).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 12);
}

#[test]
fn the_same_forecast_gives_the_same_bytes() {
    assert_eq!(
        calendar_of("a", "disk", timestamps_ending_in_days(9), now()),
        calendar_of("a", "disk", timestamps_ending_in_days(9), now())
    );
}

proptest! {
    #[test]
    fn any_name_gives_a_valid_icalendar(name in ".{0,120}", component in "[\\x00-\\x7f]{0,60}") {
        let text = calendar_of(&name, &component, timestamps_ending_in_days(90), now());
        let lines = parse_icalendar(&text);
        assert_nested(&lines);
        for event in events(&lines) {
            let summary = unescape(property_value(&event, "SUMMARY"));
            let clean = |text: &str| text.chars().filter(|it| !it.is_control()).collect::<String>();
            let expected = format!("{} of clusters/{}", clean(&component), clean(&name));
            prop_assert!(clean(&summary).ends_with(&expected), "{}", summary);
        }
    }
}
