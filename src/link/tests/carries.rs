//! What links carry: frames in their order, bulk beside control, and data connections.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

#[test]
fn frames_come_in_order_and_whole() {
    let runtime = runtime();
    let (one, two) = pair(&runtime);
    let sizes = [0, 1, 4096, 4097, 70_000, PAYLOAD_BYTES_MAX, 3];
    for lane in [Lane::Control, Lane::Bulk] {
        for (kind, size) in sizes.into_iter().enumerate() {
            assert!(one.links.send(two.id(), lane, kind as u8, Bytes::from(vec![kind as u8; size])));
        }
        for (kind, size) in sizes.into_iter().enumerate() {
            let (from, found, payload) = two.until("a frame", |seen| match seen {
                Seen::Frame(from, of, kind, payload) if of == lane => Some((from, kind, payload)),
                _ => None,
            });
            assert_eq!((from.id, usize::from(found), payload.len()), (one.id(), kind, size));
            assert!(payload.iter().all(|byte| usize::from(*byte) == kind));
        }
    }
    assert!(two.links.send(one.id(), Lane::Control, 9, Bytes::from_static(b"x")));
    one.until("the frame", |seen| matches!(seen, Seen::Frame(_, Lane::Control, 9, _)).then_some(()));
}

#[test]
fn frames_come_between_up_and_down_only() {
    let runtime = runtime();
    let one = node(1).start(&runtime);
    for run in 10..20 {
        let mut plan = node(2).seeds(&[&one.address()]);
        plan.run = run;
        let two = plan.start(&runtime);
        two.up();
        assert!(two.links.send(one.id(), Lane::Control, 1, Bytes::new()));
        let mut seen = vec![one.next(), one.next()];
        two.stop(&runtime);
        seen.push(one.next());
        let is_right = matches!(&seen[..], [Seen::Up(up), Seen::Frame(frame, ..), Seen::Down(down)]
            if [up.run, frame.run, down.run] == [run; 3]);
        assert!(is_right, "run {run}: {seen:#?}");
    }
}

#[test]
fn a_control_frame_is_not_stuck_behind_bulk() {
    const BULK_BYTES: usize = 100_000_000;
    let runtime = runtime();
    let one = node(1).start(&runtime);
    let mut plan = node(2).seeds(&[&one.address()]);
    plan.count_bulk = true;
    let two = plan.start(&runtime);
    both_up(&one, &two);
    let chunk = Bytes::from(vec![0; 1 << 20]);
    let links = one.links.clone();
    let to = two.id();
    // The lane takes what it has room for, and refuses the rest.
    let mut sent = 0;
    while links.send(to, Lane::Bulk, 1, chunk.clone()) && sent < BULK_BYTES {
        sent += chunk.len();
    }
    assert!(one.links.peers()[0].bulk_queue_bytes > 0, "it could not be taken as fast");
    assert!(links.counts().bulk_full() > 0, "and not all at once");
    assert!(links.send(to, Lane::Control, 7, Bytes::new()));
    two.until("the control frame", |seen| matches!(seen, Seen::Frame(_, Lane::Control, 7, _)).then_some(()));
    let before = two.told.bulk.load(Relaxed);
    assert!(before < BULK_BYTES, "bulk was still on its way");
    eventually("all of the bulk arrives", || {
        while sent < BULK_BYTES && links.send(to, Lane::Bulk, 1, chunk.clone()) {
            sent += chunk.len();
        }
        two.told.bulk.load(Relaxed) >= BULK_BYTES
    });
}

#[test]
fn a_full_control_lane_breaks_the_link_and_it_comes_again() {
    let runtime = runtime();
    let (one, two) = pair(&runtime);
    let frame = Bytes::from(vec![0; PAYLOAD_BYTES_MAX]);
    eventually("there is no room any more", || !one.links.send(two.id(), Lane::Control, 1, frame.clone()));
    one.down();
    assert_eq!(one.links.counts().control_overflows(), 1);
    assert_eq!(one.up().id, two.id());
    assert!(one.links.send(two.id(), Lane::Control, 2, Bytes::new()));
    two.until("a later frame", |seen| matches!(seen, Seen::Frame(_, Lane::Control, 2, _)).then_some(()));
}

async fn carry(from: &mut ByteStream, to: &mut ByteStream, word: &[u8]) {
    from.write_all(word).await.unwrap();
    from.flush().await.unwrap();
    let mut read = vec![0; word.len()];
    tokio::time::timeout(LIMIT, to.read_exact(&mut read)).await.unwrap().unwrap();
    assert_eq!(read, word);
}

/// Bytes there and back over a data connection.
fn talk(runtime: &Runtime, out: &mut ByteStream, into: &mut ByteStream, word: &[u8]) {
    runtime.block_on(async {
        out.attach().unwrap();
        into.attach().unwrap();
        carry(out, into, word).await;
        carry(into, out, word).await;
    });
}

#[test]
fn each_shard_has_a_data_connection_of_its_own() {
    let runtime = runtime();
    let (one, two) = pair(&runtime);
    one.links.want_data(two.id(), 0..2);
    let (mut first, mut second) = (None, None);
    for _ in 0..2 {
        match two.next() {
            Seen::DataIn(from, 0, stream) if from == one.id() => first = Some(stream),
            Seen::DataIn(from, 1, stream) if from == one.id() => second = Some(stream),
            other => panic!("{other:?}"),
        }
    }
    let mut outs: Vec<_> = (0..2)
        .map(|_| {
            one.until("data out", |seen| if let Seen::DataOut(_, s, stream) = seen { Some((s, stream)) } else { None })
        })
        .collect();
    outs.sort_by_key(|(shard, _)| *shard);
    talk(&runtime, &mut outs[0].1, &mut first.unwrap(), b"to the first");
    talk(&runtime, &mut outs[1].1, &mut second.unwrap(), b"to the second");
}

#[test]
fn data_connections_are_dialled_again_when_they_end() {
    let runtime = runtime();
    let (one, two) = pair(&runtime);
    one.links.want_data(two.id(), 1..2);
    for round in 0..3 {
        let (mut out, mut into) = (one.data_out(1), two.data_in(1));
        talk(&runtime, &mut out, &mut into, format!("round {round}").as_bytes());
        drop((out, into));
        one.links.data_ended(two.id(), 1);
    }
    one.data_out(1);
    one.links.drop_data(two.id());
    one.links.data_ended(two.id(), 1);
    one.is_quiet(Duration::from_millis(300));
    assert_eq!(one.links.linked(), [two.id()], "the link itself stays");
}

#[test]
fn data_connections_to_a_peer_may_be_wanted_before_it_is_met() {
    let runtime = runtime();
    let one = node(1).start(&runtime);
    one.links.want_data(NodeId(2), 0..1);
    let two = node(2).seeds(&[&one.address()]).start(&runtime);
    both_up(&one, &two);
    let (mut out, mut into) = (one.data_out(0), two.data_in(0));
    talk(&runtime, &mut out, &mut into, b"met at last");
}

#[test]
fn data_connections_come_anew_with_the_link() {
    let runtime = runtime();
    let (one, two) = pair_of(&runtime, node(2).alone(1));
    one.links.want_data(two.id(), 0..1);
    let _first = (one.data_out(0), two.data_in(0));
    let bind = two.links.local_addr();
    two.stop(&runtime);
    drop(two);
    one.down();
    let mut plan = node(2);
    (plan.run, plan.config.bind) = (5, bind);
    let again = plan.start(&runtime);
    assert!(matches!(one.next(), Seen::Up(peer) if peer.run == 5));
    let (mut out, mut into) = (one.data_out(0), again.data_in(0));
    talk(&runtime, &mut out, &mut into, b"to the new run");
}
