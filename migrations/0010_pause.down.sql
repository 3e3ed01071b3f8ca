DELETE FROM state_edge WHERE entity = 'job' AND (at, becomes) IN ((1, 7), (4, 6), (4, 7), (5, 6), (6, 10));
