import unittest

from .shares import describe, shares


class SharesTest(unittest.TestCase):
    def test_an_even_bill_is_split_evenly(self) -> None:
        self.assertEqual(shares(900, 3), [300, 300, 300])

    def test_every_cent_is_paid(self) -> None:
        for total in (1000, 999, 1, 0):
            for people in (1, 3, 7):
                self.assertEqual(sum(shares(total, people)), total, f"{total} cents, {people} people")

    def test_nobody_pays_more_than_a_cent_more(self) -> None:
        paid = shares(1000, 7)
        self.assertLessEqual(max(paid) - min(paid), 1)

    def test_the_first_ones_pay_the_odd_cents(self) -> None:
        self.assertEqual(describe(1000, 3), "3.34 3.33 3.33")

    def test_a_bill_for_nobody_is_refused(self) -> None:
        with self.assertRaises(ValueError):
            shares(100, 0)


if __name__ == "__main__":
    unittest.main()
