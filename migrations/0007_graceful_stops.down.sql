DELETE FROM state_edge WHERE entity = 'job' AND (at, becomes) IN ((2, 5), (2, 6), (5, 9), (6, 9));
