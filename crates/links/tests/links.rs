//! Members over real sockets on the loopback: what comes, what is lost, and what is told of it.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

#[path = "support/member.rs"]
mod support;

use bson::rawdoc;
use limits::Part;
use links::stand_in::{read_message, send_message};
use links::{HostAndPort, LinkHello, Tuning};
use member::Arrival;
use quorum::MemberId;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;
use support::{Member, News, SET_NOW, eventually, member, member_at, set_id, tuning};

/// Opens a link by hand, as `from`; `None` where it is refused, with the reason.
fn open(to: &Member, change: impl FnOnce(&mut LinkHello)) -> Result<TcpStream, String> {
    let mut hello = hello_to(to);
    change(&mut hello);
    open_by(to, &hello)
}

fn hello_to(to: &Member) -> LinkHello {
    LinkHello {
        set: "rs".to_owned(),
        set_id: set_id(),
        from: MemberId(9),
        to: to.id,
        lineage: 0,
        start: 1,
        connection: 1,
    }
}

fn open_by(to: &Member, hello: &LinkHello) -> Result<TcpStream, String> {
    let mut stream = TcpStream::connect(("127.0.0.1", to.number)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    send_message(&mut stream, &rawdoc! { "hello": 1, "fernLink": hello.encode(), "$db": "admin" })
        .unwrap();
    let answer = read_message(&mut stream).unwrap();
    let Ok((_, wire::Message::Msg(answer))) = wire::decode(&answer) else { panic!("no OP_MSG") };
    match answer.body.get_str("errmsg") {
        Ok(reason) => Err(reason.to_owned()),
        Err(_) => Ok(stream),
    }
}

fn report_bytes(from: MemberId, term: u64) -> Vec<u8> {
    let report = replica::MemberReport { from, term, ..replica::MemberReport::default() };
    framed(&replica::Frame::Report(report).encode())
}

fn framed(frame: &[u8]) -> Vec<u8> {
    let head = [(frame.len() as u32).to_le_bytes(), crc32c::crc32c(frame).to_le_bytes()];
    [&head.concat(), frame].concat()
}

fn is_closed(stream: &mut TcpStream) -> bool {
    !matches!(stream.read(&mut [0; 8]), Ok(1..))
}

#[test]
fn three_members_exchange_frames_in_order() {
    let members = [member(1), member(2), member(3)];
    for member in &members {
        let others: Vec<&Member> = members.iter().filter(|other| other.id != member.id).collect();
        member.others(&others);
    }
    for member in &members {
        for other in members.iter().filter(|other| other.id != member.id) {
            for term in 0..500 {
                member.report(other.id, term);
            }
        }
    }
    for member in &members {
        let mut next = std::collections::BTreeMap::new();
        let mut left = 1000;
        eventually("all comes", || {
            for news in member.news() {
                if let News::Report(from, term) = news {
                    let next = next.entry(from).or_insert(0);
                    assert_eq!(term, *next, "in order, from {from}");
                    (*next, left) = (*next + 1, left - 1);
                }
            }
            (left == 0).then_some(())
        });
        eventually("all links are open", || {
            let states = member.links.states();
            let open = states.values().filter(|state| state.sends && state.receives);
            (open.count() == 2).then_some(())
        });
    }
    for member in members {
        assert!(member.links.shutdown(Duration::from_secs(5)));
        assert_eq!(member.memory.usage().of(Part::Links), 0, "all memory is given back");
    }
}

#[test]
fn large_frames_arrive_whole() {
    let (one, two) = (member(1), member(2));
    one.others(&[&two]);
    let sizes = [0, 1, 65_536, 4 << 20, 40 << 20];
    for bytes in sizes {
        one.append(two.id, bytes);
        two.expect(&[News::Payload(one.id, bytes)]);
        // One that is packed on its way.
        one.append_payload(two.id, vec![5; bytes + 1]);
        two.expect(&[News::Payload(one.id, bytes + 1)]);
    }
}

#[test]
fn a_killed_member_is_lost_and_refused_once_and_found_again() {
    let (one, two) = (member(1), member(2));
    one.others(&[&two]);
    one.expect(&[News::Up(two.id)]);
    one.report(two.id, 1);
    two.reports_until(one.id, 1);
    let (id, port) = (two.id, two.kill());
    one.expect(&[News::Lost(id), News::PortClosed(id)]);
    let mut refused = 0;
    for _ in 0..100 {
        one.report(id, 2);
        refused += one.news().iter().filter(|news| **news == News::PortClosed(id)).count();
        std::thread::sleep(Duration::from_millis(3));
    }
    assert_eq!(refused, 0, "it is told once");
    let two = member_at(2, port, tuning());
    one.expect(&[News::Up(id)]);
    one.report(id, 3);
    assert_eq!(two.reports_until(one.id, 3).last(), Some(&3), "frames go out again");
    two.kill();
    one.expect(&[News::PortClosed(id)]);
}

#[test]
fn a_member_that_opens_a_link_is_tried_at_once() {
    let slow = Tuning {
        least_pause: Duration::from_mins(1),
        most_pause: Duration::from_mins(1),
        ..tuning()
    };
    let (one, two) = (member_at(1, 0, slow), member(2));
    let (id, at) = (two.id, two.at());
    let port = two.kill();
    one.links.set_peers(&[(id, at)]).unwrap();
    one.expect(&[News::PortClosed(id)]);
    let two = member_at(2, port, tuning());
    two.others(&[&one]);
    one.expect(&[News::Up(id)]);
    two.expect(&[News::Up(one.id)]);
    two.kill();
    one.expect(&[News::Lost(id)]);
}

#[test]
fn who_does_not_belong_here_is_told_why() {
    let one = member(1);
    let hello = || hello_to(&one);
    for (hello, words) in [
        (LinkHello { set: "other".to_owned(), ..hello() }, "it is in the set 'other'"),
        (LinkHello { set_id: bson::oid::ObjectId::new(), ..hello() }, "initiated apart"),
        (LinkHello { to: MemberId(5), ..hello() }, "it looks for the member"),
        (LinkHello { from: MemberId(1), ..hello() }, "this member"),
        (LinkHello { from: MemberId(77), ..hello() }, "is not in this server's configuration"),
        (LinkHello { lineage: 4, ..hello() }, "different ways"),
    ] {
        let reason = open_by(&one, &hello).unwrap_err();
        assert!(reason.starts_with("the link is refused: ") && reason.contains(words), "{reason}");
    }
    let mut stream = TcpStream::connect(("127.0.0.1", one.number)).unwrap();
    let hello = rawdoc! { "hello": 1, "fernLink": { "version": 2 }, "$db": "admin" };
    send_message(&mut stream, &hello).unwrap();
    let answer = read_message(&mut stream).unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("version 2"));
    assert!(open(&one, |_| {}).is_ok());
}

#[test]
fn a_member_that_answers_as_another_is_not_spoken_to() {
    let (one, two) = (member(1), member(2));
    one.links.set_peers(&[(MemberId(3), two.at())]).unwrap();
    one.expect(&[News::Lost(MemberId(3))]);
    assert!(!one.links.states()[&MemberId(3)].sends);
    one.others(&[&two]);
    one.expect(&[News::Up(two.id)]);
    // It is another set's from now on, and says so to the next connection.
    two.set.identity.lock().unwrap().set = "other".to_owned();
    one.links.set_peers(&[]).unwrap();
    one.others(&[&two]);
    one.expect(&[News::Lost(two.id)]);
    assert!(!one.links.states()[&two.id].sends);
}

#[test]
fn what_is_no_frame_of_that_member_closes_its_link() {
    let one = member(1);
    let from = MemberId(9);
    let mut connection = 0;
    let mut next = || {
        connection += 1;
        open(&one, |hello| hello.connection = connection).unwrap()
    };
    let mut stream = next();
    stream.write_all(&report_bytes(from, 1)).unwrap();
    one.expect(&[News::Report(from, 1)]);
    let mut wrong = report_bytes(from, 2);
    wrong[12] ^= 1;
    let too_long = [&(replica::MAX_FRAME as u32 + 1).to_le_bytes()[..], &[0; 4]].concat();
    for bytes in [
        b"GET / HTTP/1.0\r\n\r\n".to_vec(),
        framed(b"garbage"),
        framed(&[]),
        wrong,
        too_long,
        report_bytes(MemberId(2), 2),
    ] {
        let mut stream = next();
        stream.write_all(&bytes).unwrap();
        assert!(is_closed(&mut stream), "{bytes:?}");
    }
    let mut stream = next();
    stream.write_all(&report_bytes(from, 3)).unwrap();
    one.expect(&[News::Report(from, 3)]);
    assert!(one.news().is_empty(), "nothing else has come");
}

#[test]
fn of_a_frame_that_takes_long_it_is_told_that_it_comes_on() {
    let one = member(1);
    let from = MemberId(9);
    let mut stream = open(&one, |_| {}).unwrap();
    // What is here at once tells nothing of the kind.
    stream.write_all(&report_bytes(from, 1)).unwrap();
    one.expect(&[News::Report(from, 1)]);
    stream.write_all(&[&(1_u32 << 20).to_le_bytes()[..], &[0; 4]].concat()).unwrap();
    let pause = || std::thread::sleep(Duration::from_millis(250));
    for _ in 0..3 {
        // A reader that was not run for long takes two pieces for one.
        let is_told = (0..20).any(|_| {
            stream.write_all(&[0; 8 << 10]).unwrap();
            pause();
            stream.write_all(&[0; 8 << 10]).unwrap();
            std::thread::sleep(Duration::from_millis(50));
            one.news().contains(&News::Arriving(from))
        });
        assert!(is_told, "it comes on, and nobody is told");
    }
    pause();
    drop(one.news());
    pause();
    pause();
    assert!(one.news().is_empty(), "who sends nothing is not heard of");
}

#[test]
fn of_two_connections_of_a_member_the_newer_counts() {
    let one = member(1);
    let from = MemberId(9);
    let mut older = open(&one, |hello| hello.connection = 5).unwrap();
    older.write_all(&report_bytes(from, 1)).unwrap();
    one.expect(&[News::Report(from, 1)]);
    for connection in [4, 5] {
        let reason = open(&one, |hello| hello.connection = connection).unwrap_err();
        assert!(reason.contains("a newer connection"), "{reason}");
    }
    older.write_all(&report_bytes(from, 2)).unwrap();
    one.expect(&[News::Report(from, 2)]);
    let mut newer = open(&one, |hello| hello.connection = 6).unwrap();
    newer.write_all(&report_bytes(from, 3)).unwrap();
    one.expect(&[News::Report(from, 3)]);
    assert!(is_closed(&mut older), "the older one is closed");
    let mut restarted = open(&one, |hello| (hello.start, hello.connection) = (2, 1)).unwrap();
    assert!(is_closed(&mut newer), "after a start numbers begin anew");
    restarted.write_all(&report_bytes(from, 4)).unwrap();
    one.expect(&[News::Report(from, 4)]);
}

#[test]
fn who_takes_nothing_loses_frames_and_memory_stays_bounded() {
    let bound = Tuning { queue_bytes: 1 << 20, stalled: Duration::from_millis(300), ..tuning() };
    let one = member_at(1, 0, bound);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = HostAndPort::new("127.0.0.1", listener.local_addr().unwrap().port());
    let id = MemberId(2);
    one.links.set_peers(&[(id, at)]).unwrap();
    let accept = || {
        let (mut stream, _) = listener.accept().unwrap();
        read_message(&mut stream).unwrap();
        let answer = LinkHello {
            set: "rs".to_owned(),
            set_id: set_id(),
            from: id,
            to: one.id,
            lineage: 0,
            start: 1,
            connection: 1,
        };
        send_message(&mut stream, &rawdoc! { "fernLink": answer.encode(), "ok": 1.0 }).unwrap();
        stream
    };
    let first = accept();
    one.expect(&[News::Up(id)]);
    let mut most = 0;
    for _ in 0..2000 {
        one.append(id, 100_000);
        most = most.max(one.memory.usage().of(Part::Links));
    }
    assert!(most <= 2 << 20, "{most} bytes were held");
    one.expect(&[News::Lost(id)]);
    // It is given up, and found again.
    let second = accept();
    one.expect(&[News::Up(id)]);
    drop((first, second));
}

#[test]
fn a_replica_that_takes_nothing_stops_the_reading_and_loses_nothing_of_what_came() {
    let small = Tuning { share_bytes: 1 << 20, inbox_bytes: 2 << 20, ..tuning() };
    let (one, two) = (member_at(1, 0, small), member_at(2, 0, small));
    one.others(&[&two]);
    one.expect(&[News::Up(two.id)]);
    for _ in 0..200 {
        one.append(two.id, 100_000);
    }
    std::thread::sleep(Duration::from_millis(300));
    let held = two.memory.usage().of(Part::Links);
    assert!(held <= 2 << 20 && two.links.inbox().bytes() <= 1 << 20, "{held}");
    let mut came = 0;
    eventually("all comes", || {
        let news = two.news();
        came += news.iter().filter(|news| matches!(news, News::Payload(_, 100_000))).count();
        (came == 200).then_some(())
    });
}

#[test]
fn members_come_go_and_move() {
    let (one, two, three) = (member(1), member(2), member(3));
    one.others(&[&two]);
    two.others(&[&one]);
    one.expect(&[News::Up(two.id)]);
    two.expect(&[News::Up(one.id)]);
    one.report(three.id, 1);
    one.expect(&[News::Lost(three.id)]);
    one.others(&[&two, &three]);
    one.expect(&[News::Up(three.id)]);
    one.report(three.id, 2);
    three.reports_until(one.id, 2);
    assert!(one.news().iter().all(|news| *news != News::Up(two.id)), "what stays is not made anew");
    // Two goes: its link is closed too, and it is not let in any more.
    one.set.known.lock().unwrap().remove(&two.id);
    one.others(&[&three]);
    two.expect(&[News::Lost(one.id)]);
    eventually("it is told what the set is now", || {
        two.set.told.lock().unwrap().first().filter(|told| *told == SET_NOW).map(drop)
    });
    assert!(one.set.told.lock().unwrap().is_empty(), "who is let in is told nothing");
    assert!(!one.links.states().contains_key(&two.id));
    // Three moves to another port.
    let moved = member_at(3, 0, tuning());
    one.others(&[&moved]);
    one.expect(&[News::Up(three.id)]);
    one.report(three.id, 3);
    moved.reports_until(one.id, 3);
    // And back: its numbers go on above those before.
    one.others(&[&three]);
    one.expect(&[News::Up(three.id)]);
    one.report(three.id, 4);
    three.reports_until(one.id, 4);
}

#[test]
fn an_end_is_bounded_in_time_whatever_the_links_do() {
    let one = member(1);
    // One that never answers its hello, one that nobody can reach, one whose port is closed.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = |port| HostAndPort::new("127.0.0.1", port);
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    one.links
        .set_peers(&[
            (MemberId(2), at(silent.local_addr().unwrap().port())),
            (MemberId(3), HostAndPort::new("192.0.2.1", 27017)),
            (MemberId(4), at(gone)),
        ])
        .unwrap();
    let mut half = open(&one, |_| {}).unwrap();
    half.write_all(&[1, 0]).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert!(one.links.shutdown(Duration::from_secs(1)));
    assert!(is_closed(&mut half));
    assert!(
        open(&one, |hello| hello.connection = 2)
            .unwrap_err()
            .contains("this server is shutting down")
    );
    assert!(one.links.inbox().is_closed());
    one.report(MemberId(2), 1);
    one.links.set_peers(&[(MemberId(2), at(gone))]).unwrap();
    assert!(one.links.states().is_empty(), "nothing begins behind an end");
}

#[test]
fn a_members_thread_takes_what_came_and_closes_what_it_refuses() {
    let (one, two) = (member(1), member(2));
    one.others(&[&two]);
    one.expect(&[News::Up(two.id)]);
    let arrivals = two.links.arrivals();
    one.report(two.id, 7);
    let frame = eventually("it comes", || {
        arrivals.wait(Duration::from_mins(1));
        arrivals.take(true)
    });
    assert!(
        matches!(frame, Arrival::Frame(MemberId(1), replica::Frame::Report(report)) if report.term == 7)
    );
    arrivals.hang_up(one.id, &replica::Error::Malformed { what: "it is nonsense" });
    one.expect(&[News::Lost(two.id), News::Up(two.id)]);
    arrivals.wake();
    arrivals.wait(Duration::from_mins(1));
    assert!(arrivals.take(true).is_none());
}
