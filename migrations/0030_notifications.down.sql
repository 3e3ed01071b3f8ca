DROP TRIGGER executor_lost_notifies ON executor;
DROP FUNCTION executor_lost_notifies();
DROP TRIGGER event_notifies ON event;
DROP FUNCTION event_notifies();
DROP TABLE notification;
DROP TABLE notification_target;
