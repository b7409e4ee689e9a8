from collections import Counter

from vestige.training.batching import FinetunePlan, UnlearnPlan


def test_every_row_comes_once_an_epoch_and_the_order_changes():
    plan = FinetunePlan(n_rows=10, batch_size=4, seed=0)
    epochs = [[i for b in plan.epoch(e) for i in b["train"]] for e in range(3)]
    assert all(sorted(e) == list(range(10)) for e in epochs)
    assert epochs[0] != epochs[1]
    assert [len(b["train"]) for b in plan.epoch(0)] == [4, 4, 2]
    assert plan.epoch(1) == FinetunePlan(n_rows=10, batch_size=4, seed=0).epoch(1)


def test_buckets_hold_rows_of_like_length():
    lengths = tuple(8 + 10 * (i % 4) for i in range(40))
    plan = FinetunePlan(40, 10, seed=0, lengths=lengths)
    for epoch in range(3):
        batches = plan.epoch(epoch)
        # Lengths differ by 10 and the jitter is below 4, so no batch of 10 mixes two of them.
        assert all(len({lengths[i] for i in b["train"]}) == 1 for b in batches)
        assert sorted(i for b in batches for i in b["train"]) == list(range(40))
    assert plan.epoch(0) != plan.epoch(1)


def test_retain_partners_go_through_the_whole_set_before_one_comes_again():
    plan = UnlearnPlan(n_forget=20, n_retain=360, answers={}, batch_size=4, seed=3)
    drawn = [i for e in range(18) for b in plan.epoch(e) for i in b["retain"]]
    # 18 epochs of 20 are 360 draws: each partner once, where drawing with replacement would miss a third.
    assert Counter(drawn) == Counter(range(360))
    again = [i for b in plan.epoch(18) for i in b["retain"]]
    assert again != drawn[:20]


def test_forget_and_partners_are_paired_row_by_row():
    plan = UnlearnPlan(n_forget=10, n_retain=3, answers={"idk": 5}, batch_size=4, seed=0)
    for batch in plan.epoch(2):
        assert len(batch["forget"]) == len(batch["retain"]) == len(batch["idk"])
        # IDK rows are numbered question * n_idk + line.
        assert [i // 5 for i in batch["idk"]] == list(batch["forget"])
